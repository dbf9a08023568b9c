"""Functions of one unit. All that matters is whether they map zero to zero."""

from __future__ import annotations

from typing import Any

from ..builder import Builder
from ..registry import aten, rules_for
from ..steps import Signal, Value

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
    """f(0) = 0: each unit leads to itself, and a unit that is zero stays zero."""
    return x


@rules_for(NOT_ZERO_AT_ZERO)
def offset(build: Builder, x: Signal, *args: Any, **kwargs: Any) -> Signal:
    """f(0) ≠ 0: as a wire, but never identically zero."""
    return build.bias(x)


@rules_for(aten("exp exp_ exp2 sigmoid sigmoid_"))
def vanishing(build: Builder, x: Signal, *args: Any, **kwargs: Any) -> Signal:
    """The same, but zero where the argument is −∞."""
    blocked = x.blocked
    out = build.bias(x if blocked is None else build.block(x, ~blocked))
    return out if blocked is None else build.block(out, ~blocked)


@rules_for(aten("hardtanh clamp clamp_ hardtanh_ clip clamp_min clamp_max"))
def clamp(build: Builder, x: Signal, *bounds: Any, **named: Any) -> Signal:
    """Zero stays zero unless the bounds exclude it."""
    low, high = (*bounds, None, None)[:2]
    low, high = named.get("min", low), named.get("max", high)
    keeps = all(not isinstance(v, int | float) for v in (low, high)) or (
        (not isinstance(low, int | float) or low <= 0)
        and (not isinstance(high, int | float) or high >= 0)
    )
    return x if keeps else build.bias(x)


@rules_for(aten("prelu _prelu_kernel"))
def prelu(build: Builder, x: Signal, slope: Value) -> Signal:
    """max(x, 0) + slope · min(x, 0), a slope per channel."""
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
    """a · σ(b), where a and b are the halves of x."""
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
