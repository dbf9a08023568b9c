"""What a search tried on the way to its network.

A search is judged on training recordings that are held out for it (validation), so that test
recordings choose nothing. Figures of the two are not to be compared: they are separate series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..schema import CurvePoint, read_json
from .points import method, point

Point = Mapping[str, Any]
_MEASURED = {"validation": "validation_top1", "test": "top1"}  # on what, and what a point calls it


def tried_in(path: Path) -> tuple[CurvePoint, ...]:
    """The points of a curve's file: sparsity, kept; validation_top1, top1 and live where known."""
    try:
        return tuple(read_json(path, list[CurvePoint], "delete it to do without it"))
    except FileNotFoundError:
        return ()


def tried_rows(curve: Sequence[Point]) -> list[dict[str, Any]]:
    """A row for each accuracy of each point.

    >>> for row in tried_rows([{"sparsity": 0.5, "kept": 8, "validation_top1": 0.75, "top1": 0.5}]):
    ...     print(row["key"], row["label"], row["on"], row["top1"], row["live"])
    validation-1 tried on the way (validation) validation [75.0, None] None
    test-1 tried on the way (test) test [50.0, None] None
    """
    rows = []
    for on, name in _MEASURED.items():
        for number, one in enumerate(curve, 1):
            if one.get(name) is None:
                continue
            rate, kept = float(f"{100 * float(one['sparsity']):.6g}"), float(one["kept"])
            live = None if one.get("live") is None or not kept else 100.0 * one["live"] / kept
            rows.append(
                point(f"{on}-{number}", f"tried-{on}", _label(on), rate, kept, live,
                      {"top1": one[name]}, on=on)
            )  # fmt: skip
    return rows


def tried_methods(curve: Sequence[Point]) -> list[dict[str, Any]]:
    """The series of `tried_rows`, each measured on one kind of recordings."""
    return [
        method(f"tried-{on}", _label(on))
        for on, name in _MEASURED.items()
        if any(one.get(name) is not None for one in curve)
    ]


def _label(on: str) -> str:
    return f"tried on the way ({on})"
