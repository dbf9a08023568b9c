"""What differs along a dimension: the part of a signal that a softmax or a norm does not remove.

``softmax(x)`` does not change if the same number is added to all of ``x``, and neither does a layer
norm. So they pass on what *differs* between the entries that they normalise, and nothing else. A
query times a key that is only a bias adds the same to every score: neither weight matters.

The differing part of a signal is again a signal, made of the same kinds of step. For ``x`` (.., s)
with reference s₀, write Δx = x[s] − x[s₀]. Then

- Δ(W x + b) = W Δx, where W and b are shared by all s;
- Δ(x + y) = Δx + Δy, and Δ(x y) = Δx y + x Δy;
- Δx = x where every s has weights or inputs of its own;
- Δx = 0 where x is the same for all s (a broadcast, a bias, a single entry).

Because Δx is written in ordinary steps, audits, closures and selections need no rule for it.

Which entries are compared is written in *digits* of the flat index of a signal: a digit (stride,
size) stands for the entries ``first + i * stride``, i < size. A reshape leaves digits as they are.
Where digits cannot be followed (a roll, say), all entries of the dimension are compared: what is
then called different is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import steps
from .steps import Signal

if TYPE_CHECKING:
    from .builder import Builder

Digits = tuple[tuple[int, int], ...]  # (stride, size), by falling stride, no size of one
Within = list[tuple[int, int, int]]  # (dimension, stride within it, size)
Request = tuple[Signal, Digits]
Found = Signal | None  # None: nothing differs


def digits_of(shape: Sequence[int], dims: Sequence[int]) -> Digits:
    """The digits of whole dimensions.

    >>> digits_of((2, 3, 4), (0, 2))
    ((12, 2), (1, 4))
    """
    return _digits(shape, [(d, 1, shape[d]) for d in dims])


def _digits(shape: Sequence[int], within: Within) -> Digits:
    found = [(math.prod(shape[d + 1 :]) * stride, size) for d, stride, size in within if size > 1]
    return tuple(sorted(set(found), reverse=True))


def within(shape: Sequence[int], digits: Digits) -> Within:
    """The digits by dimension; one that spans several dimensions is cut at their borders. What
    does not fit is widened to the whole of a dimension.

    >>> within((2, 3, 4), ((4, 6),))
    [(1, 1, 3), (0, 1, 2)]
    """
    found: Within = []
    for stride, size in digits:
        for d in range(len(shape) - 1, -1, -1):
            inner = math.prod(shape[d + 1 :])
            whole = inner * shape[d]
            if shape[d] == 1 or stride >= whole or size == 1:
                continue
            if stride % inner or whole % stride:
                found.append((d, 1, shape[d]))
                stride, size = whole, max(1, -(-stride * size // whole))
                continue
            part = min(size, whole // stride)
            if size % part or (whole // stride) % part:
                found.append((d, 1, shape[d]))
                stride, size = whole, -(-size * stride // whole)
            else:
                found.append((d, stride // inner, part))
                stride, size = stride * part, size // part
    return found


class Differences:
    """The differing parts of the signals of a builder, each made once."""

    def __init__(self, build: Builder) -> None:
        self.build = build
        self.known: dict[tuple[int, Digits], Found] = {}

    def of(self, x: Signal, digits: Digits) -> Found:
        """What of ``x`` differs along ``digits``: ``x`` itself if all of it does, None if
        nothing does."""
        waiting = [(x, digits)]
        wanted: dict[tuple[int, Digits], Request] = {}
        while waiting:  # not by recursion: recurrent networks are thousands of steps deep
            signal, along = waiting.pop()
            key = signal.id, along
            if along and key not in self.known and key not in wanted:
                wanted[key] = signal, along
                waiting += self.plan(signal, along)[0]
        for key in sorted(wanted):  # what a step reads was made before it
            signal, along = wanted[key]
            requests, finish = self.plan(signal, along)
            self.known[key] = finish(*(self.get(*request) for request in requests))
        return self.get(x, digits)

    def get(self, x: Signal, digits: Digits) -> Found:
        return self.known[x.id, digits] if digits else None

    def plan(self, x: Signal, digits: Digits) -> tuple[list[Request], Callable[..., Found]]:
        """What must be known of the operands of the step that made ``x``, and what follows."""
        step = self.build.steps[x.id]
        out = step.out
        places = within(out.shape, digits)
        dims = {d for d, _, _ in places}
        all_of_it: tuple[list[Request], Callable[..., Found]] = [], lambda: out
        if isinstance(step, steps.Source):
            varies = step.depends or bool(dims & set(step.varies))
            return [], lambda: out if varies else None
        if isinstance(step, steps.Reshape):
            if isinstance(step, steps.Scale) and dims & set(step.varies):
                return all_of_it
            return [(step.x, digits)], _then(step, lambda r: self.build.reshape(r, out.shape))
        if isinstance(step, steps.Either):
            rest = step.rest
            return ([], lambda: None) if rest is None else ([(rest, digits)], lambda r: r)
        if isinstance(step, steps.Join):
            return [(part, digits) for part in step.xs], lambda *rs: self.joined(step, rs)
        if isinstance(step, steps.Bias):
            return [(step.x, digits)], lambda r: self.biased(step, r, dims)
        if isinstance(step, steps.Block):
            hidden = out.blocked is not None and bool((step.keep | out.blocked).all())
            if not hidden and dims & varying(step.keep, out.ndim):  # −∞ is compared with nothing
                return all_of_it
            return [(step.x, digits)], _then(step, lambda r: self.build.block(r, step.keep))
        if isinstance(step, steps.Mix):
            if not dims & set(step.dims):
                return [(step.x, digits)], _then(step, lambda r: self.build.mix(r, step.dims))
            if out.id not in self.build.even_handed or not dims <= set(step.dims):
                return all_of_it
            return [(step.x, digits)], _then(step, lambda r: self.rescaled(step, r))
        if isinstance(step, steps.Gate | steps.Product):
            sides = ((0, 1), (0, None, 1)) if isinstance(step, steps.Product) else (None, None)
            asked = [
                (side, _moved(places, side.shape, to))
                for side, to in zip((step.x, step.y), sides, strict=True)
            ]
            if out.id in self.build.averages:
                return asked, lambda rx, ry: self.averaged(step, rx, ry)
            return asked, lambda rx, ry: self.multiplied(step, rx, ry)
        if isinstance(step, steps.Cat):
            if step.dim in dims and len(step.xs) > 1:
                return all_of_it
            asked = [(part, _moved(places, part.shape)) for part in step.xs]
            return asked, lambda *rs: self.concatenated(step, rs)
        if isinstance(step, steps.Contract | steps.Fixed):
            if dims != {1}:  # other weights
                return all_of_it
            x_digits = _moved(places, step.x.shape)
            if isinstance(step, steps.Contract):
                weight = step.weight
                return [(step.x, x_digits)], _then(step, lambda r: self.build.contract(r, weight))
            matrix = step.matrix
            return [(step.x, x_digits)], _then(step, lambda r: self.build.fixed(r, matrix))
        return self.rearranged(step, places)

    def rearranged(
        self, step: steps.Step, places: Within
    ) -> tuple[list[Request], Callable[..., Found]]:
        build = self.build
        if isinstance(step, steps.Permute):
            asked = _moved(places, step.x.shape, step.dims)
            return [(step.x, asked)], _then(step, lambda r: build.permute(r, step.dims))
        if isinstance(step, steps.Expand):
            kept = [p for p in places if step.x.shape[p[0]] > 1]
            asked = _moved(kept, step.x.shape)
            return [(step.x, asked)], _then(step, lambda r: build.expand(r, step.out.shape))
        if isinstance(step, steps.Reduce):
            left = [d for d in range(step.x.ndim) if d not in step.dims]
            asked = _moved(places, step.x.shape, left)
            return [(step.x, asked)], _then(step, lambda r: build.reduce(r, step.dims))
        assert isinstance(step, steps.Gather)
        dim, index = step.dim, step.index
        inside = [p for p in places if dim <= p[0] < dim + index.ndim]
        if inside and bool((index < 0).any()):
            return [], lambda: step.out
        outside = [
            (d if d < dim else d - index.ndim + 1, stride, size)
            for d, stride, size in places
            if (d, stride, size) not in inside
        ]
        read = _read(index, [(d - dim, stride, size) for d, stride, size in inside])
        full = [(dim, 1, step.x.shape[dim])] if read is None else [(dim, s, n) for s, n in read]
        asked = _moved(outside + full, step.x.shape)
        return [(step.x, asked)], _then(step, lambda r: build.gather(r, dim, index, step.window))

    def joined(self, step: steps.Join, parts: Sequence[Found]) -> Found:
        if all(same(part, x) for part, x in zip(parts, step.xs, strict=True)):
            return step.out
        left = [part for part in parts if part is not None]
        return self.build.join(*left) if left else None

    def biased(self, step: steps.Bias, rest: Found, dims: set[int]) -> Found:
        if not dims & set(step.varies):
            return rest
        if same(rest, step.x):
            return step.out
        start = self.build.nothing(step.out.shape) if rest is None else rest
        return self.build.add(
            steps.Bias(self.build.signal(step.out.shape), start, step.nonzero, step.varies)
        )

    def multiplied(self, step: steps.Gate | steps.Product, rx: Found, ry: Found) -> Found:
        if same(rx, step.x) or same(ry, step.y):
            return step.out
        pairs = [(x, y) for x, y in ((rx, step.y), (step.x, ry)) if x is not None and y is not None]
        parts = []
        for x, y in pairs:
            kind = steps.Product if isinstance(step, steps.Product) else steps.Gate
            parts.append(self.build.add(kind(self.build.signal(step.out.shape), x, y)))
        return None if not parts else parts[0] if len(parts) == 1 else self.build.join(*parts)

    def rescaled(self, step: steps.Mix, rest: Signal) -> Signal:
        """Two entries that are alike stay alike in a norm: their difference is scaled, by
        something that all entries share and feel."""
        common = self.build.bias(self.build.reduce(step.x, step.dims, keepdim=True))
        return self.build.gate(rest, common)

    def averaged(self, step: steps.Step, rx: Found, ry: Found) -> Found:
        """Of Σ p v with Σ p = 1, where p is zero in other places for each sum: what all v have in
        common is in every sum."""
        assert isinstance(step, steps.Product)
        rest, flip = self.build.averages[step.out.id]
        shares, values, of_shares, of_values = (
            (step.y, step.x, ry, rx) if flip else (step.x, step.y, rx, ry)
        )
        if same(of_values, values) or (of_shares is not None and same(rest, values)):
            return step.out
        changed = [of_values, rest if of_shares is not None else None]
        parts = []
        for side in changed:
            if side is not None:
                pair = (side, shares) if flip else (shares, side)
                parts.append(
                    self.build.add(steps.Product(self.build.signal(step.out.shape), *pair))
                )
        return None if not parts else parts[0] if len(parts) == 1 else self.build.join(*parts)

    def concatenated(self, step: steps.Cat, parts: Sequence[Found]) -> Found:
        if all(same(part, x) for part, x in zip(parts, step.xs, strict=True)):
            return step.out
        if all(part is None for part in parts):
            return None
        whole = [
            self.build.nothing(x.shape) if part is None else part
            for part, x in zip(parts, step.xs, strict=True)
        ]
        return self.build.cat(whole, step.dim)


def same(found: Found, x: Signal) -> bool:
    return found is not None and found.id == x.id


def _then(step: steps.Step, make: Callable[[Signal], Signal]) -> Callable[[Found], Found]:
    """The same step on the differing part of its one operand."""

    def finish(rest: Found) -> Found:
        if rest is None:
            return None
        return step.out if same(rest, step.operands[0]) else make(rest)

    return finish


def _moved(places: Within, shape: Sequence[int], to: Sequence[int | None] | None = None) -> Digits:
    """Digits in another shape, in which dimension d is ``to[d]``; none where that is None or
    missing."""
    found = []
    for d, stride, size in places:
        into = d if to is None else to[d] if d < len(to) else None
        if into is not None:
            found.append((into, stride, size) if shape[into] % (stride * size) == 0
                         else (into, 1, shape[into]))  # fmt: skip
    return _digits(shape, found)


def _read(index: Tensor, places: Within) -> list[tuple[int, int]] | None:
    """Which digits (stride, size) of a dimension are read along digits of an index into it; None
    if they follow no rule."""
    found = []
    for d, stride, size in places:
        rows = index.movedim(d, -1)
        if rows.shape[-1] % (stride * size):
            return None
        rows = rows.reshape(-1, rows.shape[-1] // (stride * size), size, stride)
        far = rows - rows[:, :, :1]
        step = int(far[0, 0, 1, 0])
        if not bool((far == step * torch.arange(size)[:, None]).all()):
            return None
        if step:
            found.append((abs(step), size))
    return found


def varying(value: Tensor, ndim: int) -> set[int]:
    """Dimensions, of a shape of ``ndim`` that ``value`` is broadcast to, along which it differs.

    >>> varying(torch.tensor([[1, 1], [2, 2]]), 3)
    {1}
    """
    lead = ndim - value.ndim
    return {
        lead + d
        for d in range(value.ndim)
        if value.shape[d] > 1 and bool((value != value.narrow(d, 0, 1)).any())
    }


def slimmed(value: Tensor) -> Tensor:
    """The same constant with size one along every dimension in which it does not differ."""
    dims = varying(value, value.ndim)
    for d in range(value.ndim):
        if d not in dims and value.shape[d] > 1:
            value = value.narrow(d, 0, 1)
    return value


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
