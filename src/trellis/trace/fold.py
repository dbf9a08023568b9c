"""Positions that no message can tell apart, folded into one.

The patches of an image in a transformer are used alike by every weight: whatever comes to one of
them comes to all, whatever leads on from one leads on from all. Where joining a message with
itself changes nothing, one patch stands for the rest, and 197 positions are two.

A dimension of a signal is cut into segments such that every step turns messages that are equal
within segments into such messages, in both directions. Dimensions that steps lead into each other
form an axis, and share its cuts: an axis starts as one segment, is cut where steps treat neighbours
differently, and is pinned (left as it is) where they do anything more involved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from . import steps
from .builder import invert
from .reshaping import groups
from .values import Signal

Dim = tuple[int, int]  # a signal's id, and one of its dimensions


@dataclass
class Axes:
    """Which dimensions lie on one axis, and where; what is cut, and what is pinned."""

    parents: dict[Dim, tuple[Dim, int]] = field(default_factory=dict)
    marks: list[tuple[Dim, int]] = field(default_factory=list)
    pinned: list[Dim] = field(default_factory=list)

    def find(self, dim: Dim) -> tuple[Dim, int]:
        """The axis of a dimension, and where on it the dimension begins."""
        chain = []
        while dim in self.parents:
            chain.append(dim)
            dim, _ = self.parents[dim]
        start = 0
        for one in reversed(chain):  # from now on, each has it at once
            start += self.parents[one][1]
            self.parents[one] = dim, start
        return dim, start

    def link(self, a: Dim, b: Dim, shift: int = 0) -> None:
        """Position p of ``a`` is position p + ``shift`` of ``b``."""
        (root_a, start_a), (root_b, start_b) = self.find(a), self.find(b)
        if root_a != root_b:
            self.parents[root_a] = root_b, start_b + shift - start_a
        elif start_a != start_b + shift:
            self.pinned.append(root_a)

    def cut(self, dim: Dim, position: int) -> None:
        """Positions before ``position`` differ from those from there on."""
        self.marks.append((dim, position))

    def cut_by(self, signal: Signal, mask: Tensor) -> None:
        """A constant (broadcastable) that tells neighbours apart cuts between them."""
        lead = signal.ndim - mask.ndim
        for d in range(mask.ndim):
            if mask.shape[d] > 1:
                rest = mask.movedim(d, 0).flatten(1) if mask.ndim > 1 else mask[:, None]
                for position in ((rest[1:] != rest[:-1]).any(1).nonzero()[:, 0] + 1).tolist():
                    self.cut((signal.id, lead + d), position)

    def pin(self, signal: Signal, *dims: int) -> None:
        self.pinned += [(signal.id, d) for d in dims if signal.shape[d] > 1]

    def same(self, x: Signal, out: Signal, dims: Sequence[int] | None = None) -> None:
        """Dimensions of ``x`` (all, in order) that become dimensions of ``out``."""
        for d in range(x.ndim):
            into = d if dims is None else dims[d]
            if into >= 0 and x.shape[d] == out.shape[into]:
                self.link((x.id, d), (out.id, into))


def fold(made: list[steps.Step], outputs: Sequence[Signal]) -> list[steps.Step]:
    """The same steps over folded signals; outputs keep their shapes."""
    axes = Axes()
    even: set[int] = set()  # signals that come from an input by wires, the same everywhere
    for step in made:
        look(axes, step, even)
    for signal in outputs:
        axes.pin(signal, *range(signal.ndim))
    pinned = {axes.find(dim)[0] for dim in axes.pinned}
    cuts: defaultdict[Dim, set[int]] = defaultdict(set)
    for dim, position in axes.marks:
        axis, start = axes.find(dim)
        cuts[axis].add(start + position)
    firsts: dict[Dim, list[int]] = {}  # of each segment of a dimension, the position kept
    for signal in {x.id: x for s in made for x in (s.out, *s.operands)}.values():
        for d, size in enumerate(signal.shape):
            axis, start = axes.find((signal.id, d))
            if size > 1 and axis not in pinned:
                inner = (cut - start for cut in cuts[axis])
                found = [0, *sorted(cut for cut in inner if 0 < cut < size)]
                if len(found) < size:
                    firsts[signal.id, d] = found
    return [_folded(step, firsts) for step in made] if firsts else made


def look(axes: Axes, step: steps.Step, even: set[int]) -> None:
    """What one step links, cuts and pins."""
    out = step.out
    if isinstance(step, steps.Source):
        axes.cut_by(out, step.nonzero)
        if step.depends and step.nonzero.numel() == 1:
            even.add(out.id)
    elif isinstance(step, steps.Reshape):
        if step.x.id in even:
            even.add(out.id)
        for olds, news in groups(step.x.shape, out.shape):
            olds = [d for d in olds if step.x.shape[d] > 1]
            news = [d for d in news if out.shape[d] > 1]
            if len(olds) == len(news) == 1:
                axes.link((step.x.id, olds[0]), (out.id, news[0]))
            else:
                axes.pin(step.x, *olds)
                axes.pin(out, *news)
    elif isinstance(step, steps.Permute):
        if step.x.id in even:
            even.add(out.id)
        axes.same(step.x, out, [step.dims.index(d) for d in range(step.x.ndim)])
    elif isinstance(step, steps.Gather):
        _look_at_gather(axes, step, even)
    elif isinstance(step, steps.Cat):
        start = 0
        for x in step.xs:
            for d in range(out.ndim):
                axes.link((x.id, d), (out.id, d), start if d == step.dim else 0)
            axes.cut((out.id, step.dim), start)
            start += x.shape[step.dim]
    elif isinstance(step, steps.Reduce):
        kept = [d for d in range(step.x.ndim) if d not in step.dims]
        places = [kept.index(d) if d in kept else -1 for d in range(step.x.ndim)]
        axes.same(step.x, out, places)
    elif isinstance(step, steps.Product):
        x, y = step.x, step.y
        for a, b in (((x, 0), (out, 0)), ((y, 0), (out, 0)), ((x, 1), (out, 1)),
                     ((y, 1), (out, 2)), ((x, 2), (y, 2))):  # fmt: skip
            axes.link((a[0].id, a[1]), (b[0].id, b[1]))
    elif isinstance(step, steps.Contract | steps.Fixed):
        axes.pin(step.x, 0, 2)
        axes.pin(out, 0, 2)
        axes.link((step.x.id, 1), (out.id, 1))
    else:  # unit by unit: Expand, Join, Gate, Mix, Bias, Block
        for x in step.operands:
            axes.same(x, out)
        if isinstance(step, steps.Bias | steps.Block):
            constant = step.nonzero if isinstance(step, steps.Bias) else step.keep
            axes.cut_by(out, constant)
            if step.x.id in even and constant.numel() == 1:
                even.add(out.id)


def _look_at_gather(axes: Axes, step: steps.Gather, even: set[int]) -> None:
    x, out, dim, wide = step.x, step.out, step.dim, step.index.ndim
    axes.same(x, out, [d if d < dim else -1 if d == dim else d + wide - 1 for d in range(x.ndim)])
    first = int(step.index.reshape(-1)[0])
    if wide == 1 and first >= 0 and step.index.tolist() == [*range(first, first + len(step.index))]:
        axes.link((out.id, dim), (x.id, dim), first)  # a slice
        axes.cut((x.id, dim), first)
        axes.cut((x.id, dim), first + len(step.index))
        return
    axes.pin(x, dim)
    # Windows on an input that is the same everywhere are the same, if none hangs over its edge;
    # that they lead back to different places is nobody's concern, with no connection before them.
    alike = x.id in even and bool((step.index >= 0).all())
    axes.pin(out, *range(dim + 1 if alike else dim, dim + wide))


def _folded(step: steps.Step, firsts: dict[Dim, list[int]]) -> steps.Step:
    """One step over folded signals."""

    def smaller(x: Signal) -> Signal:
        shape = tuple(len(firsts.get((x.id, d), range(n))) for d, n in enumerate(x.shape))
        return x if shape == x.shape else Signal(x.id, shape)

    def taken(mask: Tensor) -> Tensor:
        for d in range(mask.ndim):
            key = step.out.id, step.out.ndim - mask.ndim + d
            if mask.shape[d] > 1 and key in firsts:
                mask = mask.index_select(d, torch.tensor(firsts[key]))
        return mask

    changes: dict[str, object] = {"out": smaller(step.out)}
    for name in ("x", "y"):
        if hasattr(step, name):
            changes[name] = smaller(getattr(step, name))
    if hasattr(step, "xs"):
        changes["xs"] = tuple(smaller(x) for x in step.xs)
    for name in ("nonzero", "keep"):
        if hasattr(step, name):
            changes[name] = taken(getattr(step, name))
    if isinstance(step, steps.Gather):
        changes |= _fewer_places(step, firsts)
    return replace(step, **changes)  # type: ignore[arg-type]


def _fewer_places(step: steps.Gather, firsts: dict[Dim, list[int]]) -> dict[str, object]:
    kept, read = firsts.get((step.out.id, step.dim)), firsts.get((step.x.id, step.dim))
    index, size = step.index, step.x.shape[step.dim]
    if kept is None and read is None:
        return {}
    if kept is not None:
        index = index[kept]
    if read is not None:  # a slice begins and ends with a segment
        index = torch.searchsorted(torch.tensor(read), index)
        size = len(read)
    return {"index": index, "inverse": invert(index, size), "window": None}
