"""The same trellis in fewer steps, for whoever asks about connections only.

Models turn signals about before and after every operation, and a trellis repeats it: of ten steps
between two convolutions of a residual network eight only rename units. Here a signal that is
another one, differently arranged, is read from that one directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from . import steps
from .fold import fold
from .values import Signal


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
