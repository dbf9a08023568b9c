"""The report of a compaction: sizes before and after, what had to stay and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from ...graph.trellis import Trellis, current
from ...masks import plain
from ...paths.kernels import count
from ...paths.liveness import draw
from ...schema import CompactedReport, fitted


@dataclass(frozen=True)
class Size:
    """How large a network is.

    Attributes:
        units: Units that its layers compute, batch aside.
        connections: Entries of its weights.
        kept: Connections that are not pruned.
        dense: Multiplications per sample, with all connections.
        sparse: Multiplications per sample, with kept connections.
        bytes: Size of all tensors.
    """

    units: int
    connections: int
    kept: int
    dense: int
    sparse: int
    bytes: int

    @classmethod
    def of(cls, net: Trellis, model: nn.Module) -> Size:
        net = net.wired  # each layer once
        kept = current(net).kept()
        with plain(model) as seen:
            tensors = {t.data_ptr(): t for t in seen.state_dict().values()}
            size = sum(t.numel() * t.element_size() for t in tensors.values())
        return cls(
            units=sum(math.prod(step.out.shape) for step in net.contractions),
            connections=net.total,
            kept=sum(count(mask) for mask in kept.values()),
            dense=net.uses,
            sparse=sum(
                count(draw(net, step.weight, kept)) * step.x.shape[1] for step in net.contractions
            ),
            bytes=size,
        )


@dataclass(frozen=True)
class Stay:
    """Dead units of a layer that had to stay, and why."""

    layer: str
    units: int
    why: str

    def __str__(self) -> str:
        return f"{self.layer}: {self.units:,} stay because {self.why}"


@dataclass(frozen=True)
class Report:
    """What a compaction changed; prints as a table.

    Attributes:
        before: Size of the given model.
        after: Size of the compacted model.
        stays: Dead units that had to stay.
        notes: Further remarks.
    """

    before: Size
    after: Size
    stays: tuple[Stay, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Report:
        """Rebuild a report from `to_dict`."""
        found = fitted(given, CompactedReport)
        before, after = (Size(**found[when]) for when in ("before", "after"))
        return cls(before, after, tuple(Stay(**s) for s in found["stays"]), tuple(found["notes"]))

    def rows(self) -> list[list[str]]:
        """Return the table: a header, and one row per measure."""
        rows = [["", "before", "after", "of before"]]
        words = {
            "units": "units",
            "connections": "connections",
            "kept": "of them kept",
            "dense": "multiplications, dense",
            "sparse": "multiplications, sparse",
            "bytes": "bytes",
        }
        for name, word in words.items():
            a, b = getattr(self.before, name), getattr(self.after, name)
            rows.append([word, f"{a:,}", f"{b:,}", _share(b, a)])
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(cells)).rstrip()
            for cells in (list(zip(row, widths, strict=True)) for row in rows)
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        told = [f"- {stay}" for stay in self.stays] + [f"- {note}" for note in self.notes]
        return "\n".join([*lines, *([""] if told else []), *told])


def _share(part: int, whole: int) -> str:
    """
    >>> _share(1, 4), _share(3, 1000), _share(0, 0)
    ('25 %', '0.3 %', '')
    """
    return f"{100 * part / whole:.3g} %" if whole else ""


def measured(model: nn.Module, net: Trellis) -> Size:
    """Measure a model that was traced."""
    with torch.no_grad():
        return Size.of(net, model)
