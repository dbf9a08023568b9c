"""The vocabulary in which rules are written: a builder that appends steps.

A rule receives the builder and the operation's arguments (signals, weights, tensors, numbers)
and returns signals. It never sees an algebra, a mask or a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from . import steps
from .values import Signal, Weight
from .window import Window

S = TypeVar("S", bound=steps.Step)
TRUE = torch.ones((), dtype=torch.bool)


def invert(index: Tensor, size: int) -> Tensor:
    """Which flat places of ``index`` hold each value 0..size−1: (size, fan), padded with −1.

    >>> invert(torch.tensor([1, -1, 1, 0]), 2)
    tensor([[ 3, -1],
            [ 0,  2]])
    """
    flat = index.reshape(-1)
    places = torch.nonzero(flat >= 0)[:, 0]
    values = flat[places]
    order = torch.sort(values, stable=True).indices
    values, places = values[order], places[order]
    counts = torch.bincount(values, minlength=size)
    fan = int(counts.max()) if len(values) else 1
    starts = torch.cumsum(counts, 0) - counts
    inverse = torch.full((size, max(fan, 1)), -1, dtype=torch.int64)
    inverse[values, torch.arange(len(values)) - starts[values]] = places
    return inverse


class Builder:
    """Appends steps; each method returns the signal it made."""

    def __init__(self) -> None:
        self.steps: list[steps.Step] = []
        self.driven: set[int] = set()  # signals that come from an input of the model

    def signal(
        self, shape: Sequence[int], blocked: Tensor | None = None, example: Tensor | None = None
    ) -> Signal:
        return Signal(len(self.steps), tuple(int(n) for n in shape), blocked, example)

    def add(self, step: S) -> Signal:
        self.steps.append(step)
        from_input = isinstance(step, steps.Source) and step.depends
        if from_input or any(x.id in self.driven for x in step.operands):
            self.driven.add(step.out.id)
        return step.out

    # -- sources ---------------------------------------------------------------------------

    def input(self, shape: Sequence[int], example: Tensor | None = None) -> Signal:
        return self.add(steps.Source(self.signal(shape, example=example), True, TRUE))

    def constant(self, value: Tensor) -> Signal:
        """A constant tensor as a signal that no input reaches."""
        blocked = minus_infinity(value)
        return self.add(steps.Source(self.signal(value.shape, blocked), False, value != 0))

    def parameter(self, weight: Weight) -> Signal:
        """A parameter that is only added or normalised: constant, not zero."""
        return self.add(steps.Source(self.signal(weight.shape), False, TRUE))

    def lift(self, weight: Weight) -> Signal:
        """A parameter as a signal: the constant one times each entry."""
        n = math.prod(weight.shape)
        one = self.add(steps.Source(self.signal((n, 1, 1)), False, TRUE, lifts=True))
        flat = weight.moved(lambda t: t.reshape(n, 1, 1))
        return self.reshape(
            self.add(steps.Contract(self.signal((n, 1, 1)), one, flat)), weight.shape
        )

    # -- wires -----------------------------------------------------------------------------

    def reshape(self, x: Signal, shape: Sequence[int]) -> Signal:
        if tuple(shape) == x.shape:
            return x
        blocked = None if x.blocked is None else x.blocked.expand(x.shape).reshape(tuple(shape))
        return self.add(steps.Reshape(self.signal(shape, blocked), x))

    def permute(self, x: Signal, dims: Sequence[int]) -> Signal:
        dims = tuple(d % x.ndim for d in dims)
        if dims == tuple(range(x.ndim)):
            return x
        blocked = None if x.blocked is None else x.blocked.expand(x.shape).permute(dims)
        shape = [x.shape[d] for d in dims]
        return self.add(steps.Permute(self.signal(shape, blocked), x, dims))

    def expand(self, x: Signal, shape: Sequence[int]) -> Signal:
        """Broadcast to ``shape``, new dimensions in front, as torch does."""
        shape = tuple(shape)
        x = self.reshape(x, (1,) * (len(shape) - x.ndim) + x.shape)
        full = tuple(
            have if want == -1 else want for have, want in zip(x.shape, shape, strict=True)
        )
        if full == x.shape:
            return x
        return self.add(steps.Expand(self.signal(full, x.blocked), x))

    def gather(self, x: Signal, dim: int, index: Tensor, window: Window | None = None) -> Signal:
        """Along ``dim`` read the places ``index`` (1-D or 2-D, −1 for nothing)."""
        dim %= x.ndim
        index = index.cpu().to(torch.int64)
        blocked = None
        if x.blocked is not None:
            flat = x.blocked.expand(x.shape).index_select(dim, index.reshape(-1).clamp(min=0))
            blocked = flat.reshape(x.shape[:dim] + tuple(index.shape) + x.shape[dim + 1 :])
        shape = x.shape[:dim] + tuple(index.shape) + x.shape[dim + 1 :]
        out = self.signal(shape, blocked)
        return self.add(steps.Gather(out, x, dim, index, invert(index, x.shape[dim]), window))

    def cat(self, xs: Sequence[Signal], dim: int) -> Signal:
        dim %= xs[0].ndim
        shape = list(xs[0].shape)
        shape[dim] = sum(x.shape[dim] for x in xs)
        blocked = None
        if any(x.blocked is not None for x in xs):
            none = torch.zeros((), dtype=torch.bool)
            parts = [(none if x.blocked is None else x.blocked).expand(x.shape) for x in xs]
            blocked = torch.cat(parts, dim)
        return self.add(steps.Cat(self.signal(shape, blocked), tuple(xs), dim))

    def join(self, *xs: Signal) -> Signal:
        """Elementwise sum with broadcasting."""
        shape = torch.broadcast_shapes(*(x.shape for x in xs))
        parts = tuple(self.expand(x, shape) for x in xs)
        blocked = None
        for x in parts:
            if x.blocked is not None:
                blocked = x.blocked if blocked is None else blocked | x.blocked
        return self.add(steps.Join(self.signal(shape, blocked), parts))

    def reduce(self, x: Signal, dims: Sequence[int], keepdim: bool = False) -> Signal:
        dims = tuple(sorted({d % x.ndim for d in dims})) if x.ndim else ()
        if not dims:
            return x
        shape = [n for d, n in enumerate(x.shape) if d not in dims]
        out = self.add(steps.Reduce(self.signal(shape), x, dims))
        kept = [1 if d in dims else n for d, n in enumerate(x.shape)]
        return self.reshape(out, kept) if keepdim else out

    def mix(self, x: Signal, dims: Sequence[int]) -> Signal:
        dims = tuple(sorted({d % x.ndim for d in dims}))
        share = 1.0
        for d in dims:
            share /= x.shape[d]
        return self.add(steps.Mix(self.signal(x.shape), x, dims, share))

    # -- constants and products ------------------------------------------------------------

    def bias(self, x: Signal, nonzero: Tensor = TRUE) -> Signal:
        """Add a constant; ``nonzero`` says where it is not zero."""
        shape = torch.broadcast_shapes(x.shape, nonzero.shape)
        x = self.expand(x, shape)
        nonzero = TRUE if bool(nonzero.all()) else nonzero.cpu()
        return self.add(steps.Bias(self.signal(shape, x.blocked), x, nonzero))

    def block(self, x: Signal, keep: Tensor) -> Signal:
        """Multiply by a constant; ``keep`` says where it is not zero."""
        shape = torch.broadcast_shapes(x.shape, keep.shape)
        x = self.expand(x, shape)
        if bool(keep.all()):
            return x
        return self.add(steps.Block(self.signal(shape, x.blocked), x, keep.cpu()))

    def gate(self, x: Signal, y: Signal) -> Signal:
        shape = torch.broadcast_shapes(x.shape, y.shape)
        x, y = self.expand(x, shape), self.expand(y, shape)
        return self.add(steps.Gate(self.signal(shape), x, y))

    def contract(self, x: Signal, weight: Weight) -> Signal:
        """x (B, M, K) by weight (B, N, K) to (B, M, N): the connections live here."""
        b, m, k = x.shape
        if weight.shape[0] != b or weight.shape[2] != k:
            raise ValueError(f"contract: signal {x.shape} does not fit weight {weight.shape}")
        out = self.signal((b, m, weight.shape[1]))
        return self.add(steps.Contract(out, x, weight))

    def fixed(self, x: Signal, matrix: Tensor) -> Signal:
        """x (B, M, K) by a constant (B, N, K) to (B, M, N)."""
        out = self.signal((*x.shape[:2], matrix.shape[1]))
        return self.add(steps.Fixed(out, x, matrix.detach().cpu().to(torch.float32).abs()))

    def product(self, x: Signal, y: Signal) -> Signal:
        """x (B, M, K) by y (B, N, K) to (B, M, N)."""
        return self.add(steps.Product(self.signal((*x.shape[:2], y.shape[1])), x, y))

    def blocked(self, x: Signal, where: Tensor) -> Signal:
        """The same signal, −∞ where ``where`` (bool) is true."""
        shape = torch.broadcast_shapes(x.shape, where.shape)
        x = self.expand(x, shape)
        both = where if x.blocked is None else where | x.blocked
        out = self.signal(shape, both.cpu())
        return self.add(steps.Reshape(out, x))


def minus_infinity(value: Tensor) -> Tensor | None:
    """Where a constant added to attention scores means "never": −∞, or so far down (−10,000
    or less, as many models write it) that its exponential is zero in float32."""
    if not value.is_floating_point():
        return None
    never = value <= -1e4
    return never.cpu() if bool(never.any()) else None
