"""What a sum along a dimension leaves of a signal: the counterpart of :mod:`.differences`.

A softmax sums to one, and an instance norm sums to zero, whatever the input is. So an average pool
behind an instance norm passes on nothing, and attention passes on a part that all values have in
common without a look at queries and keys.

For ``x`` (.., s), `Sums.of` writes a signal with the same sum over s, made of ordinary steps:

- a softmax over s becomes the constant with the same zeros, a norm over s becomes nothing;
- Σ(W x + b) = W Σx + Σb, where W is shared by all s;
- Σ(x + y) = Σx + Σy, and Σ(x y) = y Σx where y is the same for all s.

Curves do not commute with sums: a signal that is `Signal.bent` is left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import steps
from .differences import Digits, Within, _moved, within
from .steps import Signal

if TYPE_CHECKING:
    from .builder import Builder

Sum = Signal | None  # None: the sum is zero
DEPTH = 100  # linear steps in a row that are followed back


def contained(inner: Digits, outer: Digits) -> bool:
    """Whether every digit of ``inner`` is part of one of ``outer``.

    >>> contained(((2, 3),), ((4, 3), (1, 2))), contained(((4, 3),), ((4, 3), (1, 2)))
    (False, True)
    """
    wide = _merged(outer)
    return all(
        any(s % stride == 0 and size % (s // stride * n) == 0 for stride, size in wide)
        for s, n in _merged(inner)
    )


def _merged(digits: Digits) -> list[tuple[int, int]]:
    """Digits that follow one another, as one."""
    found: list[tuple[int, int]] = []
    for stride, size in sorted(digits):
        if found and found[-1][0] * found[-1][1] == stride:
            found[-1] = found[-1][0], found[-1][1] * size
        else:
            found.append((stride, size))
    return found


class Sums:
    """Signals with the same sums as others, each made once."""

    def __init__(self, build: Builder) -> None:
        self.build = build
        self.known: dict[tuple[int, Digits], Sum] = {}
        # Of softmaxes and norms: the digits over which the sum is known, and a constant with the
        # same sum; None for zero.
        self.facts: dict[int, tuple[Digits, Sum]] = {}

    def of(self, x: Signal, digits: Digits, depth: int = 0) -> Sum:
        """A signal in the shape of ``x`` with the same sum over ``digits``; ``x`` itself if
        nothing simpler is known, None if the sum is zero."""
        if x.bent or not digits or depth > DEPTH:
            return x
        key = x.id, digits
        if key not in self.known:
            self.known[key] = self.found(x, digits, depth + 1)
        found = self.known[key]
        return x if found is not None and found.id == x.id else found

    def found(self, x: Signal, digits: Digits, depth: int) -> Sum:
        build, step = self.build, self.build.steps[x.id]
        if x.id in self.facts and contained(self.facts[x.id][0], digits):
            return self.facts[x.id][1]
        places = within(step.out.shape, digits)
        if _count(places) != math.prod(size for _, size in digits):
            return x
        dims = {d for d, _, _ in places}
        if isinstance(step, steps.Bias):
            rest = self.of(step.x, digits, depth)
            if _is(rest, step.x):
                return x
            start = build.nothing(x.shape) if rest is None else rest
            return build.add(steps.Bias(build.signal(x.shape), start, step.nonzero, step.varies))
        if isinstance(step, steps.Join):
            parts = [self.of(part, digits, depth) for part in step.xs]
            if all(_is(part, old) for part, old in zip(parts, step.xs, strict=True)):
                return x
            left = [part for part in parts if part is not None]
            return build.join(*left) if left else None
        if isinstance(step, steps.Gate):
            for side, other in ((step.x, step.y), (step.y, step.x)):
                rest = self.of(side, digits, depth)
                if not _is(rest, side) and build.differences.of(other, digits) is None:
                    return None if rest is None else build.gate(rest, other)
            return x
        return self.moved(step, places, dims, depth)

    def moved(self, step: steps.Step, places: Within, dims: set[int], depth: int) -> Sum:
        """Through a step with one operand that commutes with the sum."""
        build, out = self.build, step.out
        to: Sequence[int | None] | None = None
        if isinstance(step, steps.Scale):
            if dims & set(step.varies):
                return out
        elif isinstance(step, steps.Permute):
            to = step.dims
        elif isinstance(step, steps.Expand):
            if any(step.x.shape[d] == 1 for d in dims):
                return out
        elif isinstance(step, steps.Gather):
            if step.index.ndim != 1 or step.dim in dims:
                return out
        elif isinstance(step, steps.Contract | steps.Fixed):
            if dims != {1}:
                return out
        elif not isinstance(step, steps.Reshape):
            return out
        x: Signal = step.operands[0]
        if isinstance(step, steps.Reshape):
            digits = tuple(
                sorted(((math.prod(out.shape[d + 1 :]) * s, n) for d, s, n in places), reverse=True)
            )
        else:
            digits = _moved(places, x.shape, to)
            if math.prod(size for _, size in digits) != _count(places):
                return out
        rest = self.of(x, digits, depth)
        if rest is None:
            return None
        if _is(rest, x):
            return out
        if isinstance(step, steps.Scale):
            return build.add(steps.Scale(build.signal(out.shape), rest, step.varies))
        if isinstance(step, steps.Permute):
            return build.permute(rest, step.dims)
        if isinstance(step, steps.Expand):
            return build.expand(rest, out.shape)
        if isinstance(step, steps.Gather):
            return build.gather(rest, step.dim, step.index)
        if isinstance(step, steps.Contract):
            return build.contract(rest, step.weight)
        if isinstance(step, steps.Fixed):
            return build.fixed(rest, step.matrix)
        return build.reshape(rest, out.shape)


def _is(found: Sum, x: Signal) -> bool:
    return found is not None and found.id == x.id


def _count(places: Within) -> int:
    return math.prod(size for _, _, size in places)
