"""Convolutions: gather the windows of the input, then contract them with the kernel per group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from ...errors import TrellisError
from ..builder import Builder, invert
from ..registry import aten, rules_for
from ..steps import Signal, Value, Weight, Window, grid, pair, sliding
from .linear import with_bias

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
