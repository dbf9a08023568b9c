"""Shorten a trellis to fewer steps with the same connections.

Models rearrange signals before and after every operation, and a trellis repeats this: of ten steps
between two convolutions of a residual network, eight only rename units. Here a signal that is a
rearrangement of another signal is read from that signal directly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from . import steps
from .builder import invert
from .steps import Signal

# Reshaping: which dimensions of the old shape become which of the new.


@lru_cache(maxsize=1 << 12)
def groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions of both shapes that hold the same number of units.

    >>> groups((2, 3, 4), (6, 4))
    [([0, 1], [0]), ([2], [1])]
    """
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        olds: list[int] = []
        news: list[int] = []
        a = b = 1
        while True:
            if olds and news and a == b:
                break
            if (a <= b and i < len(old)) or j >= len(new):
                if i >= len(old):
                    break
                a *= old[i]
                olds.append(i)
                i += 1
            else:
                b *= new[j]
                news.append(j)
                j += 1
        # Trailing ones belong to the last run.
        while i < len(old) and old[i] == 1:
            olds.append(i)
            i += 1
        while j < len(new) and new[j] == 1:
            news.append(j)
            j += 1
        found.append((olds, news))
    return found


# Positions that no message can tell apart, folded into one.
#
# The patches of an image in a transformer are used alike by every weight: whatever comes to one of
# them comes to all, whatever leads on from one leads on from all. Where joining a message with
# itself changes nothing, one patch stands for the rest, and 197 positions are two.
#
# A dimension of a signal is cut into segments such that every step turns messages that are equal
# within segments into such messages, in both directions. Dimensions that steps lead into each other
# form an axis, and share its cuts: an axis starts as one segment, is cut where steps treat
# neighbours differently, and is pinned (left as it is) where they do anything more involved.


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
    first = int(step.index.reshape(-1)[0]) if step.index.numel() else -1
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


def lean(made: Sequence[steps.Step], outputs: Sequence[Signal], *, gated: bool) -> list[steps.Step]:
    """Fewer steps, from the same inputs to the same outputs over the same contractions, and
    positions that nothing tells apart folded into one. For algebras in which joining a message
    with itself changes nothing."""
    shortener = Shortener({signal.id for signal in outputs}, gated)
    short = [step for one in made for step in shortener.shorten(one)]
    return fold(needed(short, outputs), outputs)


class Shortener:
    """Makes steps read what they need from as far back as it can be had.

    ``same``: signals that are another one. ``flat``: what a reshaped signal was reshaped from.
    ``order``: a signal as another with its dimensions (those of more than one unit) in some order.
    """

    def __init__(self, outputs: set[int], gated: bool) -> None:
        self.outputs, self.gated = outputs, gated
        self.same: dict[int, Signal] = {}
        self.flat: dict[int, Signal] = {}
        self.order: dict[int, tuple[Signal, list[int]]] = {}

    def shorten(self, step: steps.Step) -> Iterator[steps.Step]:
        """What remains of a step; nothing if its output is a signal that there is already."""
        step = self.reading(step)
        if isinstance(step, steps.Permute):
            step = self.permuted(step)
        elif isinstance(step, steps.Reshape):
            step = self.reshaped(step.out, self.flat.get(step.x.id, step.x))
        elif isinstance(step, steps.Bias) and step.nonzero.numel() == 1 and self.gated:
            yield from self.biased(step)
            return
        idle = isinstance(step, steps.Reshape) or (isinstance(step, steps.Bias) and not self.gated)
        if idle and step.out.id not in self.outputs:
            (x,) = step.operands
            if x.shape == step.out.shape:
                self.same[step.out.id] = x
                return
        yield step

    def biased(self, step: steps.Bias) -> Iterator[steps.Step]:
        """What is added everywhere may as well be added before a signal is reshaped."""
        source = self.flat.get(step.x.id)
        if source is None:
            yield step
        else:
            before = Signal(-step.out.id - 1, source.shape)  # ids of others are not negative
            yield steps.Bias(before, source, step.nonzero)
            yield self.reshaped(step.out, before)

    def reading(self, step: steps.Step) -> steps.Step:
        """The same step, of signals that are still there."""
        changes: dict[str, Any] = {}
        for name in ("x", "y"):
            x = getattr(step, name, None)
            if isinstance(x, Signal) and x.id in self.same:
                changes[name] = self.same[x.id]
        if isinstance(step, steps.Join | steps.Cat):
            changes["xs"] = tuple(self.same.get(x.id, x) for x in step.xs)
        return replace(step, **changes) if changes else step

    def permuted(self, step: steps.Permute) -> steps.Step:
        root, order = self.arrangement(step.x)
        place = dict(zip(wide(step.x), order, strict=True))
        order = [place[d] for d in step.dims if d in place]
        if order == sorted(order):  # turned back to how it was
            return self.reshaped(step.out, self.flat.get(root.id, root))
        self.order[step.out.id] = root, order
        return step

    def reshaped(self, out: Signal, source: Signal) -> steps.Step:
        if [out.shape[d] for d in wide(out)] == [source.shape[d] for d in wide(source)]:
            root, order = self.arrangement(source)
            self.order[out.id] = root, order
            if order == sorted(order):
                source = self.flat.get(root.id, root)
        self.flat[out.id] = source
        return steps.Reshape(out, source)

    def arrangement(self, x: Signal) -> tuple[Signal, list[int]]:
        return self.order.get(x.id, (x, wide(x)))


def wide(x: Signal) -> list[int]:
    """The dimensions of more than one unit."""
    return [d for d, n in enumerate(x.shape) if n > 1]


def needed(made: Sequence[steps.Step], outputs: Sequence[Signal]) -> list[steps.Step]:
    """The steps that lead to an output."""
    wanted = {signal.id for signal in outputs}
    found = []
    for step in reversed(made):
        if step.out.id in wanted:
            found.append(step)
            wanted.update(x.id for x in step.operands)
    return found[::-1]
