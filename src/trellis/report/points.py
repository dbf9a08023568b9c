"""A network as a point of a chart, and the series that points belong to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..paths.audit import Audit
from .curves import PLACE, VALUE


def method(key: str, label: str) -> dict[str, Any]:
    """A series: points of one method are joined by one line, so all must be measured alike."""
    return {"key": key, "label": label, "consistent": True, "paper": False}


def point(
    key: str, method: str, label: str, rate: float, kept: float, live: float | None,
    metrics: Mapping[str, Any], found: Audit | None = None, on: str = "test",
) -> dict[str, Any]:  # fmt: skip
    """``live`` is in percent, None where nobody knows; ``on`` says which recordings were named."""

    def accuracy(name: str) -> list[float | None] | None:
        value = metrics.get(name)
        return None if value is None else [round(100 * float(value), 4), None]

    return {
        "key": key, "method": method, "label": label, "rate": rate, "x": None,
        "kept": [kept, None], "live": None if live is None else [live, None],
        "on": on, "top1": accuracy("top1"), "mean_class": accuracy("mean_class"),
        "train": accuracy("train_top1"),
        "networks": 1, "wanted": 1, "disconnected": int(live == 0), "refused": None,
        "bytes": None if found is None else (VALUE + PLACE) * found.live,
        "layers": None if found is None else {x.name: [x.kept, x.live] for x in found.layers},
    }  # fmt: skip
