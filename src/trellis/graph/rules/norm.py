"""Normalization. Scales and shifts are not connections: scales are wires, shifts are biases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..builder import TRUE, Builder
from ..registry import aten, rules_for
from ..steps import Signal, Value


def _affine(
    build: Builder, x: Signal, shape: Sequence[int], weight: Value | None, bias: Value | None
) -> Signal:
    """Apply a scale and a shift, broadcast from ``shape``."""
    if weight is not None:
        x = build.scale(x, shape)
    return x if bias is None else build.bias(x, TRUE.expand(tuple(shape)))


def _channels(x: Signal) -> tuple[int, ...]:
    """Return the shape that broadcasts one number per channel over x (N, C, ...)."""
    return (x.shape[1],) + (1,) * (x.ndim - 2)


@rules_for(aten("layer_norm"))
def layer_norm(
    build: Builder,
    x: Signal,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    *args: Any,
) -> Signal:
    """Normalize: mean and variance mix all units, so a dead unit becomes a constant."""
    dims = range(-len(shape), 0)
    return _affine(build, build.normalised(x, dims), shape, weight, bias)


@rules_for(aten("rms_norm"))
def rms_norm(
    build: Builder, x: Signal, shape: Sequence[int], weight: Value | None = None, *args: Any
) -> Signal:
    """Compute x / rms(x): a gate on x, because a unit that is zero stays zero."""
    size = build.bias(build.reduce(x, range(-len(shape), 0), keepdim=True))
    return _affine(build, build.gate(x, size), shape, weight, None)


@rules_for(aten("group_norm"))
def group_norm(
    build: Builder,
    x: Signal,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    *args: Any,
) -> Signal:
    n, c = x.shape[:2]
    per_group = c // groups * math.prod(x.shape[2:])
    grouped = build.reshape(x, (n, groups, per_group))
    out = build.reshape(build.normalised(grouped, [-1]), x.shape)
    return _affine(build, out, _channels(x), weight, bias)


@rules_for(aten("instance_norm"))
def instance_norm(
    build: Builder,
    x: Signal,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    use_input_stats: bool,
    *args: Any,
) -> Signal:
    if not use_input_stats:
        return batch_norm(build, x, weight, bias, mean, variance)
    dims = range(2, x.ndim)
    out = build.normalised(x, dims)
    return _affine(build, out, _channels(x), weight, bias)


@rules_for(aten("batch_norm"))
def batch_norm(
    build: Builder,
    x: Signal,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None = None,
    variance: Value | None = None,
    training: Any = False,
    *args: Any,
) -> Signal:
    """Apply a scale and a shift per channel, as in eval mode.

    Without stored statistics, the statistics of the batch are used; these mix positions.
    """
    if mean is None:
        dims = [0, *range(2, x.ndim)]
        x = build.normalised(x, dims)
    return build.bias(build.scale(x, _channels(x)), TRUE.expand(_channels(x)))


@rules_for(aten("native_group_norm"))
def native_group_norm(
    build: Builder,
    x: Signal,
    weight: Value | None,
    bias: Value | None,
    n: int,
    c: int,
    hw: int,
    groups: int,
    eps: float,
) -> tuple[Signal, ...]:
    out = group_norm(build, x, groups, weight, bias)
    return (out, out, out)


# The other results (means and variances for a backward pass) are not used.
_NATIVE: dict[str, tuple[Callable[..., Signal], int]] = {
    "native_layer_norm": (layer_norm, 3),
    "_fused_rms_norm": (rms_norm, 2),
    "_native_batch_norm_legit_no_training": (batch_norm, 3),
    "native_batch_norm": (batch_norm, 3),
}


def _register(name: str, plain: Callable[..., Signal], count: int) -> None:
    @rules_for(aten(name))
    def native(build: Builder, *args: Any) -> tuple[Signal, ...]:
        return (plain(build, *args),) * count


for _name, (_plain, _count) in _NATIVE.items():
    _register(_name, _plain, _count)
