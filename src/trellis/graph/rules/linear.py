"""Matrix products, attention and convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import TrellisError
from ..builder import TRUE, Builder, einsum, invert, matmul
from ..export import aten, rules_for
from ..steps import Signal, Value, Weight, Window, grid, pair, sliding
from .elementwise import add, as_signal

# Matrix products and attention.


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


# Convolutions: gather the windows of the input, then contract them with the kernel per group.


Ints = int | Sequence[int]


@rules_for(aten("conv1d conv2d conv3d"))
def conv(
    build: Builder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Signal:
    """Map x (N, C, *S) and weight (O, C/g, *k) to (N, O, *S')."""
    x, weight = _operands(x, weight)
    n = len(weight.shape) - 2
    if x.ndim == n + 1:  # no batch dimension
        batched = build.reshape(x, (1, *x.shape))
        out = conv(build, batched, weight, bias, stride, padding, dilation, groups)
        return build.reshape(out, out.shape[1:])
    kernel, size = weight.shape[2:], x.shape[2:]
    stride, dilation = pair(stride, n), pair(dilation, n)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        before = pair(0 if isinstance(padding, str) else padding, n)
        after = before
    places = [
        (s + a + b - d * (k - 1) - 1) // t + 1
        for s, a, b, d, k, t in zip(size, before, after, dilation, kernel, stride, strict=True)
    ]
    batch, channels = x.shape[:2]
    out_channels, per_group = weight.shape[:2]
    taps, count = math.prod(kernel), math.prod(places)
    x = build.reshape(x, (batch, channels, math.prod(size)))
    if taps == 1 and list(size) == places and not any(before):
        x = build.reshape(x, (batch, channels, count, 1))
    else:
        windows = [
            sliding(s, o, k, t, p, d)
            for s, o, k, t, p, d in zip(size, places, kernel, stride, before, dilation, strict=True)
        ]
        regular = Window(
            tuple(size),
            tuple(places),
            tuple(kernel),
            tuple(stride),
            tuple(before),
            tuple(dilation),
        )
        x = build.gather(x, 2, grid(windows, size), regular)  # (N, C, places, taps)
    x = build.reshape(x, (batch, groups, per_group, count, taps))
    x = build.permute(x, (1, 0, 3, 2, 4))
    x = build.reshape(x, (groups, batch * count, per_group * taps))
    heads = out_channels // groups
    out = _times(build, x, weight, lambda t: t.reshape(groups, heads, per_group * taps))
    out = build.reshape(out, (groups, batch, count, heads))
    out = build.permute(out, (1, 0, 3, 2))
    return _finish(build, out, (batch, out_channels, *places), bias)


@rules_for(aten("conv_transpose1d conv_transpose2d conv_transpose3d"))
def conv_transpose(
    build: Builder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Signal:
    """Map x (N, C, *S) and weight (C, O/g, *k) to (N, O, *S').

    Each input position writes to one window of the output.
    """
    x, weight = _operands(x, weight)
    n = len(weight.shape) - 2
    if x.ndim == n + 1:
        batched = build.reshape(x, (1, *x.shape))
        out = conv_transpose(
            build, batched, weight, bias, stride, padding, output_padding, groups, dilation
        )
        return build.reshape(out, out.shape[1:])
    kernel, size = weight.shape[2:], x.shape[2:]
    stride, padding, dilation = pair(stride, n), pair(padding, n), pair(dilation, n)
    extra = pair(output_padding, n)
    places = [
        (s - 1) * t - 2 * p + d * (k - 1) + e + 1
        for s, t, p, d, k, e in zip(size, stride, padding, dilation, kernel, extra, strict=True)
    ]
    batch, channels = x.shape[:2]
    taps, count, heads = math.prod(kernel), math.prod(size), weight.shape[1]
    inner = channels // groups
    x = build.reshape(x, (batch, groups, inner, count))
    x = build.reshape(build.permute(x, (1, 0, 3, 2)), (groups, batch * count, inner))
    out = _times(
        build, x, weight, lambda t: t.reshape(groups, inner, heads * taps).permute(0, 2, 1)
    )
    out = build.reshape(out, (groups, batch, count, heads, taps))
    out = build.permute(out, (1, 0, 3, 2, 4))
    out = build.reshape(out, (batch, groups * heads, count * taps))
    # `windows` says to which output position each (input position, tap) writes. The inverse says
    # which (input position, tap) pairs each output position reads.
    windows = [
        sliding(o, s, k, t, p, d)
        for s, o, k, t, p, d in zip(size, places, kernel, stride, padding, dilation, strict=True)
    ]
    reads: Tensor = invert(grid(windows, places), math.prod(places))
    out = build.reduce(build.gather(out, 2, reads), [3])
    return _finish(build, out, (batch, groups * heads, *places), bias)


@rules_for(aten("convolution"))
def convolution(
    build: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Signal:
    if transposed:
        return conv_transpose(
            build, x, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return conv(build, x, weight, bias, stride, padding, dilation, groups)


def _operands(x: Value, weight: Value) -> tuple[Signal, Weight | Tensor]:
    if not isinstance(x, Signal) or isinstance(weight, Signal):
        raise TrellisError(
            "a convolution is traced when its input is a signal and its kernel a parameter or a "
            f"constant; here they are a {type(x).__name__.lower()} and a "
            f"{type(weight).__name__.lower()}"
        )
    return x, weight


def _times(
    build: Builder, x: Signal, weight: Weight | Tensor, move: Callable[[Tensor], Tensor]
) -> Signal:
    """Contract x with the kernel, which ``move`` brings into shape (groups, N, K)."""
    if isinstance(weight, Weight):
        return build.contract(x, weight.moved(move))
    return build.fixed(x, move(weight))  # a constant kernel, such as a blur: wires


def _finish(build: Builder, out: Signal, shape: tuple[int, ...], bias: Value | None) -> Signal:
    """Reshape the result to (N, O, *S) and add the bias per channel."""
    out = build.reshape(out, shape)
    if isinstance(bias, Weight):
        channel = (shape[1],) + (1,) * (len(shape) - 2)
        bias = bias.moved(lambda t: t.reshape(channel))
    elif isinstance(bias, Tensor):
        bias = bias.reshape((-1,) + (1,) * (len(shape) - 2))
    return with_bias(build, out, bias)
