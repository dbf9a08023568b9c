"""Matrix products and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..builder import TRUE, Builder, einsum, matmul
from ..registry import aten, rules_for
from ..steps import Signal, Value, Weight
from .elementwise import add, as_signal


def with_bias(build: Builder, x: Signal, bias: Value | None) -> Signal:
    if bias is None:
        return x
    if isinstance(bias, Weight):
        return build.bias(x, TRUE.expand(bias.shape))
    return add(build, x, bias)


@rules_for(aten("linear"))
def linear(build: Builder, x: Value, weight: Value, bias: Value | None = None) -> Signal:
    """Map x (..., K) and weight (N, K) to (..., N)."""
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
    """Compute bias (n, p) + Σ_b x (b, n, m) y (b, m, p)."""
    return add(build, einsum(build, "bnm,bmp->np", [x, y]), bias)


@rules_for(aten("einsum"))
def einstein(build: Builder, equation: str, operands: list[Value], path: object = None) -> Signal:
    return einsum(build, equation, operands)


@rules_for(aten("bilinear"))
def bilinear(
    build: Builder, x: Value, y: Value, weight: Value, bias: Value | None = None
) -> Signal:
    """Compute Σ x_i W_oij y_j; the two signals gate each other."""
    pair = einsum(build, "...i,...j->...ij", [x, y])
    return with_bias(build, einsum(build, "...ij,oij->...o", [pair, weight]), bias)


@rules_for(aten("softmax _softmax _safe_softmax"))
def softmax(build: Builder, x: Signal, dim: int, *args: Any, **kwargs: Any) -> Signal:
    """Pass scores through a softmax.

    The result is zero where the score is −∞, and never zero elsewhere, so values survive dead
    scores. A softmax ignores whatever is equal in all scores that are not −∞.
    """
    if not x.ndim:
        return build.constant(torch.ones(()))
    seen = None
    if x.blocked is not None:
        # If a whole row is blocked, all of its scores shift alike and none is masked.
        blocked = x.blocked.expand(x.shape)
        seen = ~(blocked & ~blocked.all(dim, keepdim=True))
    x = build.centre(x, [dim], seen)
    if seen is not None:
        x = build.block(x, seen)
    out = build.bias(build.even_mix(x, [dim]))
    if seen is not None:
        out = build.block(out, seen)
    return build.sums_to_one(out, dim, seen)


@rules_for(aten("log_softmax _log_softmax"))
def log_softmax(build: Builder, x: Signal, dim: int, *args: Any, **kwargs: Any) -> Signal:
    """Like `softmax`, but the result is zero if there is a single entry."""
    out = build.even_mix(build.centre(x, [dim]), [dim]) if x.ndim else x
    return build.bias(out) if x.ndim and x.shape[dim] > 1 else build.block(out, ~TRUE)


@rules_for(aten("scaled_dot_product_attention"))
def attention(
    build: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Signal:
    """Compute softmax(q kᵀ + mask) v, with q (..., L, D), k (..., S, D) and v (..., S, E)."""
    q, k, v = (as_signal(build, t) for t in (query, key, value))
    if enable_gqa:
        times = q.shape[-3] // k.shape[-3]
        heads = torch.arange(k.shape[-3]).repeat_interleave(times)
        k, v = (build.gather(t, -3, heads) for t in (k, v))
    scores = einsum(build, "...ld,...sd->...ls", [q, k])
    if is_causal:
        allowed = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        scores = build.blocked(scores, ~allowed)
    if isinstance(attn_mask, Tensor) and attn_mask.dtype == torch.bool:
        if bool((~attn_mask).any()):
            scores = build.blocked(scores, ~attn_mask)
    elif attn_mask is not None:  # added: a constant, a learned bias or a signal
        scores = add(build, scores, attn_mask)
    return einsum(build, "...ls,...sd->...ld", [softmax(build, scores, -1), v])


# Fourier transforms. A complex number is one unit.


@rules_for(aten("_fft_c2c"))
def fourier(build: Builder, x: Value, dims: Sequence[int], *args: Any) -> Signal:
    """Each entry of the result reads all entries along ``dims``.

    A real or imaginary part counts as reading all of them too, although the cosine or sine of some
    may be zero.
    """
    return build.mix(as_signal(build, x), dims)


@rules_for(aten("_fft_r2c"))
def from_real(
    build: Builder, x: Value, dims: Sequence[int], norm: int = 0, half: bool = True
) -> Signal:
    """As `fourier`. The second half of the last dimension of ``dims`` mirrors the first."""
    out = fourier(build, x, dims)
    last = dims[-1]
    return build.gather(out, last, torch.arange(out.shape[last] // 2 + 1)) if half else out


@rules_for(aten("_fft_c2r"))
def to_real(build: Builder, x: Value, dims: Sequence[int], norm: int, size: int) -> Signal:
    """As `fourier`, with ``size`` entries along the last dimension of ``dims``."""
    out = fourier(build, x, dims)
    return build.gather(out, dims[-1], torch.arange(size) % out.shape[dims[-1]])


@rules_for(aten("imag conj _conj _conj_physical resolve_conj resolve_neg"))
def complex_wire(build: Builder, x: Value) -> Signal:
    return as_signal(build, x)


@rules_for(aten("view_as_real"))
def parts(build: Builder, x: Value) -> Signal:
    """(...) complex to (..., 2) real."""
    x = as_signal(build, x)
    return build.scale(build.reshape(x, (*x.shape, 1)), (2,))


@rules_for(aten("view_as_complex"))
def whole(build: Builder, x: Value) -> Signal:
    """(..., 2) real to (...) complex."""
    return build.reduce(as_signal(build, x), [-1])


@rules_for(aten("complex"))
def from_parts(build: Builder, real: Value, imaginary: Value) -> Signal:
    return build.join(as_signal(build, real), as_signal(build, imaginary))
