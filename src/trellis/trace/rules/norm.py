"""Normalisation. Scales and shifts are not connections: a scale is a wire, a shift a bias."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..builder import Builder
from ..registry import aten, rules_for
from ..values import Signal, Value


@rules_for(aten("layer_norm"))
def layer_norm(
    build: Builder,
    x: Signal,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    *args: Any,
) -> Signal:
    """Every unit feels the mean and variance of all: a dead one becomes a constant."""
    out = build.mix(x, range(-len(shape), 0))
    return out if bias is None else build.bias(out)


@rules_for(aten("rms_norm"))
def rms_norm(
    build: Builder, x: Signal, shape: Sequence[int], weight: Value | None = None, *args: Any
) -> Signal:
    """x / rms(x): a gate on x, since a unit that is zero stays zero."""
    size = build.bias(build.reduce(x, range(-len(shape), 0), keepdim=True))
    return build.gate(x, size)


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
    mixed = build.mix(build.reshape(x, (n, groups, per_group)), [-1])
    out = build.reshape(mixed, x.shape)
    return out if bias is None else build.bias(out)


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
        return build.bias(x)
    out = build.mix(x, range(2, x.ndim))
    return out if bias is None else build.bias(out)


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
    """In eval mode a scale and a shift per channel. Without stored statistics those of the
    batch are used, and mix positions."""
    if mean is None:
        x = build.mix(x, [0, *range(2, x.ndim)])
    return build.bias(x)


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


# What these return beside the result (means and variances, for a backward pass) goes unused.
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
