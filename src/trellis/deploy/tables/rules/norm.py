"""Norms: a scale and a shift if statistics are fixed, else sums over the units they mix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import TrellisError
from ..activation import Activation
from ..network import Network, Reals, Signal, lowers
from .arithmetic import expanded, mul, number, reduced, sub


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
