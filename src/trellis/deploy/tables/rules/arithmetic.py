"""Sums, products and functions of entries; reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....errors import TrellisError
from ..activation import Activation
from ..network import Network, Reals, Signal, flat, lowers
from ..planes import (
    PlaneBlock,
    PlaneNetwork,
    add_planes,
    planes_of,
    readable,
    sum_of_planes,
)

# A mean of at least this many entries over several dimensions is taken one dimension at a time:
# a picture of 64 by 64 then takes 128 terms in a table rather than 4,096.
LARGE = 64


def number(value: Any) -> Reals:
    return np.asarray(value.double().numpy() if isinstance(value, Tensor) else value, np.float64)


def expanded(x: Any, shape: Sequence[int]) -> Signal:
    return Signal(x.ids.expand(*shape))


def shape_of(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Signal | Tensor) else ()


@lowers("add add_")
def add(net: Network, a: Any, b: Any, *, alpha: float = 1) -> Signal:
    shape = torch.broadcast_shapes(shape_of(a), shape_of(b))
    if isinstance(a, Signal) and isinstance(b, Signal):
        a, b = expanded(a, shape), expanded(b, shape)
        looped = sum_of_planes(net, a, b) if alpha == 1 and isinstance(net, PlaneNetwork) else None
        if looped is not None:
            return looped
        every = np.arange(math.prod(shape))
        weights = np.repeat([1.0, float(alpha)], len(every))
        return net.sums(
            shape, np.tile(every, 2), np.concatenate([flat(a), flat(b)]), weights, wiring=True
        )
    if isinstance(a, Signal):
        return net.each(expanded(a, shape), shift=alpha * number(b))
    return net.each(expanded(b, shape), float(alpha), number(a))


@lowers("sub sub_")
def sub(net: Network, a: Any, b: Any, *, alpha: float = 1) -> Signal:
    return add(net, a, b, alpha=-alpha)


@lowers("rsub")
def rsub(net: Network, a: Any, b: Any, *, alpha: float = 1) -> Signal:
    return add(net, b, a, alpha=-alpha)


@lowers("mul mul_")
def mul(net: Network, a: Any, b: Any) -> Signal:
    shape = torch.broadcast_shapes(shape_of(a), shape_of(b))
    if isinstance(a, Signal) and isinstance(b, Signal):
        every = np.arange(math.prod(shape))
        return net.dots(shape, every, flat(expanded(a, shape)), flat(expanded(b, shape)))
    x, other = (a, b) if isinstance(a, Signal) else (b, a)
    return net.each(expanded(x, shape), number(other))


@lowers("div div_ true_divide")
def div(net: Network, a: Any, b: Any, *, rounding_mode: Any = None) -> Signal:
    if rounding_mode is not None:
        raise TrellisError(f"a division rounded by {rounding_mode!r}")
    if isinstance(b, Signal):
        return mul(net, a, net.each(b, act=Activation("reciprocal")))
    return mul(net, a, torch.as_tensor(1.0 / number(b)))


@lowers("neg")
def neg(net: Network, x: Signal) -> Signal:
    return net.each(x, -1.0)


@lowers("pow")
def power(net: Network, x: Any, exponent: Any) -> Signal:
    if isinstance(x, Signal) and exponent == 2:
        return mul(net, x, x)
    raise TrellisError(f"a power other than the square ({exponent!r:.40})")


@lowers("square")
def square(net: Network, x: Signal) -> Signal:
    return mul(net, x, x)


def reduced(net: Network, x: Signal, dims: Any, keepdim: bool, mean: bool) -> Signal:
    n = len(x.shape)
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        dims = list(range(n))
    gone = sorted(d % n for d in ([dims] if isinstance(dims, int) else dims))
    index = torch.arange(x.ids.numel()).reshape(x.shape)
    kept = [d for d in range(n) if d not in gone]
    size = math.prod(x.shape[d] for d in gone)
    shape = tuple(1 if d in gone else x.shape[d] for d in range(n) if keepdim or d not in gone)
    if mean and n > 2 and gone == list(range(2, n)):
        looped = mean_of_planes(net, x, shape)
        if looped is not None:
            return looped
    if mean and len(gone) > 1 and size >= LARGE:
        last = reduced(net, x, gone[-1], keepdim=True, mean=True)
        return Signal(reduced(net, last, gone[:-1], keepdim=True, mean=True).ids.reshape(shape))
    order = index.permute(*kept, *gone).reshape(-1).numpy()
    rows = np.repeat(np.arange(len(order) // size), size)
    weights = np.full(len(order), 1.0 / size if mean else 1.0)
    return net.sums(shape, rows, flat(x)[order], weights, wiring=not mean)


def mean_of_planes(net: Network, x: Signal, shape: tuple[int, ...]) -> Signal | None:
    """The mean of each plane, as a loop, or None."""
    planes = planes_of(x) if isinstance(net, PlaneNetwork) else None
    if planes is None:
        return None
    source = readable(net, planes, False)
    size = planes[0].size
    made = PlaneBlock(
        "mean", net.units, (len(planes), 1, 1), source, (1, 1), planes.shape[1:],
        np.zeros(0, np.int64), np.array([0, 0]), np.zeros(0), shared=True,
        scale=np.full(len(planes), 1.0 / size),
    )  # fmt: skip
    return add_planes(net, made, shape)


@lowers("sum")
def total(net: Network, x: Signal, dim: Any = None, keepdim: bool = False, **_: Any) -> Signal:
    return reduced(net, x, dim, keepdim, mean=False)


@lowers("mean")
def mean(net: Network, x: Signal, dim: Any = None, keepdim: bool = False, **_: Any) -> Signal:
    return reduced(net, x, dim, keepdim, mean=True)


@lowers("max")
def maximum(net: Network, x: Signal, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None:
        return amax(net, x)
    if not isinstance(dim, int):
        raise TrellisError("the larger of two signals")
    return amax(net, x, dim, keepdim), None  # the index of the maximum is not supported


@lowers("amax")
def amax(net: Network, x: Signal, dim: Any = None, keepdim: bool = False) -> Signal:
    n = len(x.shape)
    dims = [dim] if isinstance(dim, int) else list(dim or range(n))
    gone = sorted(d % n for d in dims)
    kept = [d for d in range(n) if d not in gone]
    size = math.prod(x.shape[d] for d in gone)
    order = torch.arange(x.ids.numel()).reshape(x.shape).permute(*kept, *gone).reshape(-1).numpy()
    shape = tuple(1 if d in gone else x.shape[d] for d in range(n) if keepdim or d not in gone)
    return net.maxima(shape, np.repeat(np.arange(len(order) // size), size), flat(x)[order])
