"""Sums, products, reductions, activations and norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....errors import TrellisError
from ..form import Activation
from ..network import (
    Network,
    PlaneBlock,
    PlaneNetwork,
    Reals,
    Signal,
    add_planes,
    flat,
    lowers,
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


# Activations: functions of one unit.


def _plain(ops: str, name: str, a: float = 0.0, b: float = 0.0) -> None:
    @lowers(ops)
    def lowered(net: Network, x: Signal, *_: Any, **__: Any) -> Signal:
        return net.each(x, act=Activation(name, a, b))


_plain("relu relu_", "relu")
_plain("relu6 relu6_", "clamp", 0.0, 6.0)
_plain("sigmoid sigmoid_", "sigmoid")
_plain("tanh tanh_", "tanh")
_plain("silu silu_", "silu")
_plain("hardswish hardswish_", "hardswish")
_plain("hardsigmoid hardsigmoid_", "hardsigmoid")
_plain("exp", "exp")
_plain("log", "log")
_plain("sqrt", "sqrt")
_plain("rsqrt", "rsqrt")
_plain("reciprocal", "reciprocal")
_plain("abs", "abs")


@lowers("leaky_relu leaky_relu_")
def leaky(net: Network, x: Signal, slope: float = 0.01) -> Signal:
    return net.each(x, act=Activation("leaky", float(slope)))


@lowers("hardtanh hardtanh_ clamp clamp_")
def clamp(net: Network, x: Signal, low: Any = None, high: Any = None, **named: Any) -> Signal:
    low, high = named.get("min_val", named.get("min", low)), named.get("max", high)
    if not all(v is None or isinstance(v, int | float) for v in (low, high)):
        raise TrellisError("a clamp whose bounds are tensors")
    return net.each(
        x,
        act=Activation(
            "clamp",
            -math.inf if low is None else float(low),
            math.inf if high is None else float(high),
        ),
    )


@lowers("clamp_min")
def clamp_min(net: Network, x: Signal, low: float) -> Signal:
    return clamp(net, x, low)


@lowers("clamp_max")
def clamp_max(net: Network, x: Signal, high: float) -> Signal:
    return clamp(net, x, None, high)


@lowers("gelu")
def gelu(net: Network, x: Signal, approximate: str = "none") -> Signal:
    return net.each(x, act=Activation("gelu" if approximate == "none" else "gelu_tanh"))


@lowers("elu elu_")
def elu(
    net: Network, x: Signal, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Signal:
    y = net.each(x, act=Activation("elu", float(alpha), float(input_scale)))
    return y if scale == 1 else net.each(y, float(scale))


@lowers("softplus")
def softplus(net: Network, x: Signal, beta: float = 1.0, threshold: float = 20.0) -> Signal:
    return net.each(x, act=Activation("softplus", float(beta)))  # beyond 20, linear to rounding


@lowers("glu")
def glu(net: Network, x: Signal, dim: int = -1) -> Signal:
    value, gate = (Signal(part) for part in x.ids.chunk(2, dim))
    return mul(net, value, net.each(gate, act=Activation("sigmoid")))


@lowers("masked_fill")
def masked_fill(net: Network, x: Signal, mask: Any, value: Any) -> Signal:
    if isinstance(mask, Signal):
        raise TrellisError("a mask that is computed from the input")
    # Tables hold finite numbers, so a large negative number stands for minus infinity in a softmax.
    number = max(float(value), -1e30)
    filler = net.constant(torch.tensor([number])).ids[0]
    return Signal(torch.where(mask.expand(x.shape), filler, x.ids))


# Norms: a scale and a shift if statistics are fixed, else sums over the units they mix.


@lowers("_native_batch_norm_legit_no_training")
def native_batch_norm(net: Network, *args: Any) -> tuple[Signal, None, None]:
    return batch_norm(net, *args), None, None  # the statistics are not used


@lowers("batch_norm")
def batch_norm(
    net: Network, x: Signal, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any
) -> Signal:
    if mean is None or var is None:
        raise TrellisError("a batch norm without running statistics")
    eps = next(float(v) for v in reversed(rest) if isinstance(v, float) and v < 0.05)
    scale = 1.0 / np.sqrt(number(var) + eps)
    if weight is not None:
        scale = scale * number(weight)
    shift = -number(mean) * scale + (0.0 if bias is None else number(bias))
    return net.each(x, _channels(scale, x), _channels(shift, x))


def _channels(values: Reals, x: Signal) -> Reals:
    return values.reshape(1, -1, *(1 for _ in x.shape[2:]))


def normalised(net: Network, x: Signal, dims: Sequence[int], eps: float) -> Signal:
    mean = reduced(net, x, list(dims), True, mean=True)
    centred = sub(net, x, expanded(mean, x.shape))
    size = math.prod(x.shape[d] for d in dims)
    return _rescaled(net, centred, dims, size, eps)


def _rescaled(net: Network, x: Signal, dims: Sequence[int], size: int, eps: float) -> Signal:
    squares = reduced(net, mul(net, x, x), list(dims), True, mean=False)
    rsqrt = net.each(squares, 1.0 / size, eps, Activation("rsqrt"))
    return mul(net, x, expanded(rsqrt, x.shape))


def _affine(net: Network, x: Signal, weight: Any, bias: Any) -> Signal:
    if weight is None and bias is None:
        return x
    scale = 1.0 if weight is None else number(weight)
    return net.each(x, scale, 0.0 if bias is None else number(bias))


@lowers("layer_norm")
def layer_norm(
    net: Network, x: Signal, shape: Sequence[int], weight: Any = None, bias: Any = None,
    eps: float = 1e-5, *_: Any,
) -> Signal:  # fmt: skip
    dims = range(len(x.shape) - len(shape), len(x.shape))
    return _affine(net, normalised(net, x, dims, eps), weight, bias)


@lowers("rms_norm")
def rms_norm(
    net: Network, x: Signal, shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Signal:
    dims = range(len(x.shape) - len(shape), len(x.shape))
    size = math.prod(shape)
    small = float(np.finfo(np.float32).eps) if eps is None else eps
    return _affine(net, _rescaled(net, x, dims, size, small), weight, None)


@lowers("group_norm")
def group_norm(
    net: Network, x: Signal, groups: int, weight: Any = None, bias: Any = None,
    eps: float = 1e-5, *_: Any,
) -> Signal:  # fmt: skip
    batch, channels = x.shape[:2]
    grouped = Signal(x.ids.reshape(batch, groups, -1))
    y = Signal(normalised(net, grouped, [2], eps).ids.reshape(x.shape))
    return _affine(
        net, y,
        None if weight is None else weight.reshape(1, channels, *(1 for _ in x.shape[2:])),
        None if bias is None else bias.reshape(1, channels, *(1 for _ in x.shape[2:])),
    )  # fmt: skip
