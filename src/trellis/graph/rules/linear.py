"""Matrix products."""

from __future__ import annotations

from ..builder import TRUE, Builder
from ..einsum import einsum, matmul
from ..registry import aten, rules_for
from ..steps import Signal, Value, Weight
from .arithmetic import add


def with_bias(build: Builder, x: Signal, bias: Value | None) -> Signal:
    if bias is None:
        return x
    if isinstance(bias, Weight):
        return build.bias(x, TRUE.expand(bias.shape))
    return add(build, x, bias)


@rules_for(aten("linear"))
def linear(build: Builder, x: Value, weight: Value, bias: Value | None = None) -> Signal:
    """x (..., K), weight (N, K) to (..., N)."""
    letters = "abcdefgh"[: len(x.shape) - 1]
    heads = "" if len(weight.shape) == 1 else "n"
    out = einsum(build, f"{letters}k,{heads}k->{letters}{heads}", [x, weight])
    return with_bias(build, out, bias)


@rules_for(aten("matmul mm bmm mv dot __matmul__"))
def product(build: Builder, x: Value, y: Value) -> Signal:
    return matmul(build, x, y)


@rules_for(aten("addmm baddbmm addmv"))
def add_product(
    build: Builder, bias: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1
) -> Signal:
    if not isinstance(x, Signal) and not isinstance(y, Signal):
        assert isinstance(bias, Signal)
        return build.bias(bias)
    return (
        add(build, matmul(build, x, y), bias)
        if isinstance(bias, Signal)
        else with_bias(build, matmul(build, x, y), bias)
    )


@rules_for(aten("addbmm"))
def add_batches(
    build: Builder, bias: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1
) -> Signal:
    """bias (n, p) + Σ_b x (b, n, m) y (b, m, p)."""
    return add(build, einsum(build, "bnm,bmp->np", [x, y]), bias)


@rules_for(aten("einsum"))
def einstein(build: Builder, equation: str, operands: list[Value], path: object = None) -> Signal:
    return einsum(build, equation, operands)


@rules_for(aten("bilinear"))
def bilinear(
    build: Builder, x: Value, y: Value, weight: Value, bias: Value | None = None
) -> Signal:
    """Σ x_i W_oij y_j: the signals gate each other inside."""
    pair = einsum(build, "...i,...j->...ij", [x, y])
    return with_bias(build, einsum(build, "...ij,oij->...o", [pair, weight]), bias)
