"""Elementwise functions, arithmetic and normalization.

Of a function of one unit, only one property matters: whether it maps zero to zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..builder import TRUE, Builder, contract_labels, minus_infinity
from ..differences import slimmed
from ..export import aten, rules_for
from ..steps import Signal, Value, Weight, bent

ZERO_AT_ZERO = aten(
    "relu relu_ leaky_relu elu selu celu gelu silu mish tanh hardswish softsign relu6 "
    "rrelu abs neg sin tan asin atan sinh asinh atanh erf erfinv expm1 log1p sqrt sign sgn "
    "floor ceil round trunc frac square tanhshrink softshrink hardshrink dropout alpha_dropout "
    "feature_dropout clone detach contiguous alias lift_fresh_copy positive "
    "nan_to_num to _to_copy type_as float double half bfloat16 real deg2rad rad2deg alias_copy "
    "lift_fresh detach_ fill_diagonal dropout_ feature_alpha_dropout"
)
NOT_ZERO_AT_ZERO = aten(
    "hardsigmoid log_sigmoid cos cosh acos acosh softplus "
    "rsqrt reciprocal log log2 log10 erfc logit special_erfcx logical_not "
    "bitwise_not isnan isinf isfinite"
)


@rules_for(ZERO_AT_ZERO)
def wire(build: Builder, x: Signal, *args: Any, **kwargs: Any) -> Signal:
    """Pass a signal through a function with f(0) = 0: a unit that is zero stays zero."""
    return x


@rules_for(NOT_ZERO_AT_ZERO)
def offset(build: Builder, x: Signal, *args: Any, **kwargs: Any) -> Signal:
    """Pass a signal through a function with f(0) ≠ 0: the result is never identically zero."""
    return build.bias(x)


@rules_for(aten("exp exp_ exp2 sigmoid sigmoid_"))
def vanishing(build: Builder, x: Signal, *args: Any, **kwargs: Any) -> Signal:
    """Like `offset`, but the result is zero where the argument is −∞."""
    blocked = x.blocked
    out = build.bias(x if blocked is None else build.block(x, ~blocked))
    return out if blocked is None else build.block(out, ~blocked)


@rules_for(aten("hardtanh clamp clamp_ hardtanh_ clip clamp_min clamp_max"))
def clamp(build: Builder, x: Signal, *bounds: Any, **named: Any) -> Signal:
    """Clamp a signal: zero stays zero if it lies between the bounds."""
    low, high = (*bounds, None, None)[:2]
    low, high = named.get("min", low), named.get("max", high)
    keeps = all(not isinstance(v, int | float) for v in (low, high)) or (
        (not isinstance(low, int | float) or low <= 0)
        and (not isinstance(high, int | float) or high >= 0)
    )
    return x if keeps else build.bias(x)


@rules_for(aten("prelu _prelu_kernel"))
def prelu(build: Builder, x: Signal, slope: Value) -> Signal:
    """Compute max(x, 0) + slope · min(x, 0), with one slope per channel."""
    if not isinstance(slope, Signal):
        return x
    if slope.ndim == 1 and x.ndim > 1:
        slope = build.reshape(slope, (slope.shape[0],) + (1,) * (x.ndim - 2))
    return build.join(x, build.gate(x, slope))


@rules_for(aten("threshold"))
def threshold(build: Builder, x: Signal, limit: float, value: float) -> Signal:
    return x if value == 0 else build.bias(x)


@rules_for(aten("glu"))
def glu(build: Builder, x: Signal, dim: int = -1) -> Signal:
    """Compute a · σ(b), where a and b are the halves of x."""
    import torch

    half = x.shape[dim] // 2
    a = build.gather(x, dim, torch.arange(half))
    b = build.gather(x, dim, torch.arange(half, 2 * half))
    return build.gate(a, build.bias(b))


@rules_for(aten("native_dropout"))
def native_dropout(build: Builder, x: Signal, *args: Any) -> tuple[Signal, Signal]:
    return x, x


@rules_for(aten("log_sigmoid_forward"))
def log_sigmoid_forward(build: Builder, x: Signal) -> tuple[Signal, Signal]:
    out = build.bias(x)
    return out, out


Operand = Signal | Weight | Tensor | float | int | bool


def as_tensor(value: Tensor | float | int | bool) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value)


def as_signal(build: Builder, value: Operand) -> Signal:
    if isinstance(value, Signal):
        return value
    if isinstance(value, Weight):
        return build.parameter(value)
    return build.constant(as_tensor(value))


@rules_for(aten("sub sub_"))
def sub(build: Builder, x: Operand, y: Operand, alpha: float = 1) -> Signal:
    return add(build, x, y, alpha=-alpha)


@rules_for(aten("add add_ rsub"))
def add(build: Builder, x: Operand, y: Operand, alpha: float = 1) -> Signal:
    """Add two operands: each signal carries paths; a constant or parameter acts as a bias."""
    if isinstance(x, Signal) and isinstance(y, Signal):
        return build.join(x, y)
    signal, other = (x, y) if isinstance(x, Signal) else (y, x)
    assert isinstance(signal, Signal)
    if isinstance(other, Weight):
        return build.bias(signal, TRUE.expand(other.shape))
    value = as_tensor(other)  # type: ignore[arg-type]
    never = minus_infinity(value * alpha if other is y else value)
    finite = value if never is None else value.masked_fill(never.to(value.device), 0)
    signal = build.expand(signal, torch.broadcast_shapes(signal.shape, value.shape))
    out = build.bias(signal, slimmed(finite) != 0) if bool((finite != 0).any()) else signal
    return out if never is None else build.blocked(out, never)


@rules_for(aten("mul mul_"))
def mul(build: Builder, x: Operand, y: Operand) -> Signal:
    """Multiply two operands.

    Two signals gate each other. A constant blocks a signal where the constant is zero. A parameter
    that varies along two dimensions or more holds connections. A parameter that varies along one
    dimension is a scale, like the scale of a norm.
    """
    if isinstance(x, Signal) and isinstance(y, Signal):
        return build.gate(x, y)
    signal, other = (x, y) if isinstance(x, Signal) else (y, x)
    assert isinstance(signal, Signal)
    if isinstance(other, Weight):
        return scale(build, signal, other)
    value = as_tensor(other)  # type: ignore[arg-type]
    return build.block(build.scale(signal, slimmed(value).shape), value != 0)


def scale(build: Builder, x: Signal, weight: Weight) -> Signal:
    shape = torch.broadcast_shapes(x.shape, weight.shape)
    if sum(n > 1 for n in weight.shape) < 2:
        return build.expand(build.scale(x, weight.shape), shape)
    x = build.expand(x, shape)
    labels = "abcdefghijklmnop"[: len(shape)]
    return contract_labels(
        build, labels, x, labels[len(shape) - len(weight.shape) :], weight, labels
    )


@rules_for(aten("div div_ true_divide floor_divide remainder fmod"))
def div(build: Builder, x: Operand, y: Operand, rounding_mode: str | None = None) -> Signal:
    """Divide: because a divisor is never zero, x / y is a gate that the divisor keeps open."""
    if not isinstance(y, Signal):
        assert isinstance(x, Signal)
        x = build.expand(x, torch.broadcast_shapes(x.shape, as_shape_of(y)))
        out = build.scale(x, slimmed(y).shape if isinstance(y, Tensor) else as_shape_of(y))
    else:
        out = build.gate(as_signal(build, x), bent(build.bias(y)))
    return out if rounding_mode is None else bent(out)


def as_shape_of(value: Operand) -> tuple[int, ...]:
    return () if isinstance(value, int | float) else tuple(value.shape)


@rules_for(aten("pow"))
def power(build: Builder, x: Operand, exponent: Operand) -> Signal:
    if isinstance(x, Signal) and isinstance(exponent, int | float) and exponent > 0:
        return x
    signals = [s for s in (x, exponent) if isinstance(s, Signal)]
    return build.bias(build.join(*signals))


@rules_for(aten("maximum minimum fmax fmin atan2 hypot"))
def either(build: Builder, x: Operand, y: Operand) -> Signal:
    """Join two operands: each carries paths alone; the result is zero if both are zero."""
    return build.join(as_signal(build, x), as_signal(build, y))


@rules_for(
    aten(
        "eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or "
        "bitwise_xor __and__ __or__ logaddexp logaddexp2 copysign xlogy isclose"
    )
)
def compare(build: Builder, x: Operand, y: Operand, *args: Any) -> Signal:
    """Like `either`, but the result need not be zero where both operands are."""
    return build.bias(either(build, x, y))


@rules_for(aten("where"))
def where(build: Builder, condition: Operand, x: Operand, y: Operand) -> Signal:
    """Select between two operands; a condition that depends on the input carries paths too."""
    if isinstance(condition, Tensor):
        sides = []
        x, y = _unseen(build, x, y, ~condition), _unseen(build, y, x, condition)
        for side, keep in ((x, condition), (y, ~condition)):
            if isinstance(side, Signal):
                sides.append(build.block(side, keep))
            elif isinstance(side, Weight):
                sides.append(build.block(build.parameter(side), keep))
            else:
                value = as_tensor(side)
                value = torch.where(keep, value, torch.zeros_like(value))
                never = minus_infinity(value)
                if never is None or bool((value[~never] != 0).any()):
                    sides.append(build.constant(value))
        return build.join(*sides)
    return build.join(*(as_signal(build, v) for v in (condition, x, y)))


def _unseen(build: Builder, side: Operand, other: Operand, chosen: Tensor) -> Operand:
    """Return ``side``, blocked where ``other`` is selected and is a constant of −∞."""
    if not isinstance(side, Signal) or isinstance(other, Signal | Weight):
        return side
    never = minus_infinity(as_tensor(other))
    return side if never is None else build.blocked(side, chosen.cpu() & never)


@rules_for(aten("masked_fill masked_fill_"))
def masked_fill(build: Builder, x: Signal, mask: Operand, value: Operand) -> Signal:
    if not isinstance(mask, Tensor):
        return where(build, mask, value, x)
    fill = as_tensor(value)  # type: ignore[arg-type]
    if minus_infinity(fill) is not None:
        return build.block(build.blocked(x, mask), ~mask)
    out = build.block(x, ~mask)
    return build.bias(out, slimmed(mask & (fill != 0)))


@rules_for(aten("addcmul"))
def addcmul(build: Builder, x: Operand, y: Operand, z: Operand, value: float = 1) -> Signal:
    product = mul(build, y, z) if isinstance(y, Signal) or isinstance(z, Signal) else None
    if product is None:
        return build.bias(as_signal(build, x))
    return add(build, x, product)


@rules_for(aten("lerp"))
def lerp(build: Builder, x: Operand, y: Operand, weight: Operand) -> Signal:
    """Compute x + w · (y − x)."""
    sides = build.join(as_signal(build, x), as_signal(build, y))
    return build.join(sides, mul(build, sides, weight)) if isinstance(weight, Signal) else sides


# Normalization. Scales and shifts are not connections: scales are wires, shifts are biases.


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
