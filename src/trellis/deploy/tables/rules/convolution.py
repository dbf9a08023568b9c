"""Convolutions, pooling and upsampling by copying.

Each is a loop over planes, or else one term per kept tap and position, unless it is padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ....errors import TrellisError
from ....graph.steps import adaptive, grid, pair, sliding
from ..network import (
    Ids,
    Network,
    PlaneBlock,
    PlaneNetwork,
    Reals,
    Signal,
    add_planes,
    lowers,
    non_negative,
    planes_of,
    readable,
)
from .elementwise import LARGE, mean_of_planes


@lowers("conv1d conv2d conv3d")
def conv(
    net: Network, x: Signal, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Signal:  # fmt: skip
    if isinstance(weight, Signal):
        raise TrellisError("a convolution whose kernel is computed from the input")
    n = weight.dim() - 2
    if len(x.shape) == n + 1:
        raise TrellisError("a convolution without a batch dimension")
    size, kernel = x.shape[2:], weight.shape[2:]
    stride, dilation = pair(stride, n), pair(dilation, n)
    if isinstance(padding, str):
        total = [
            d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, kernel, strict=True)
        ]
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        before = after = pair(padding, n)
    out = [
        (size[d] + before[d] + after[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1
        for d in range(n)
    ]
    looped = _looped(net, x, weight, bias, out, stride, before, dilation, groups)
    if looped is not None:
        return looped
    taps = grid(
        [sliding(size[d], out[d], kernel[d], stride[d], before[d], dilation[d]) for d in range(n)],
        size,
    )  # (places, taps): the input position that each tap reads, −1 for padding
    y = _tapped(net, x, weight.reshape(*weight.shape[:2], -1), taps, groups, out)
    return y if bias is None else net.each(y, shift=bias.double().numpy().reshape(-1, *[1] * n))


def _two(values: Sequence[int], fill: int) -> tuple[int, int]:
    """Of one or two dimensions, two: a sequence is a plane of one row."""
    return (fill, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))


def _looped(
    net: Network, x: Signal, weight: Tensor, bias: Any, out: Sequence[int], stride: Sequence[int],
    before: Sequence[int], dilation: Sequence[int], groups: int,
) -> Signal | None:  # fmt: skip
    """The convolution as a loop over planes, or None."""
    planes = planes_of(x) if isinstance(net, PlaneNetwork) and len(out) <= 2 else None
    if planes is None or min(out) < 1:
        return None
    window = _two(weight.shape[2:], 1)
    made = PlaneBlock(
        "conv", 0, (weight.shape[0], *_two(out, 1)), planes, _two(out, 1), window,
        *_taps(weight, groups), stride=_two(stride, 1),
        offset=_two([-b for b in before], 0), dilation=_two(dilation, 1),
        bias=np.zeros(0) if bias is None else bias.double().numpy().copy(),
    )  # fmt: skip
    made.source = readable(net, planes, made.outside)
    made.first = net.units
    return add_planes(net, made, (1, weight.shape[0], *out))


def _taps(weight: Tensor, groups: int) -> tuple[Ids, Ids, Reals]:
    """Flat taps of (channels out, channels in of a group, …), each channel's first, values."""
    flat = weight.reshape(*weight.shape[:2], -1)
    entries = torch.nonzero(flat)
    channel, within, tap = entries.T.numpy()
    source = channel // (weight.shape[0] // groups) * weight.shape[1] + within
    starts = np.searchsorted(channel, np.arange(weight.shape[0] + 1)).astype(np.int64)
    return source * flat.shape[2] + tap, starts, flat[tuple(entries.T)].double().numpy()


@lowers("convolution _convolution")
def convolution(
    net: Network, x: Signal, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    across: bool, output_padding: Any, groups: int, *_: Any,
) -> Signal:  # fmt: skip
    if across:
        return transposed(net, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(net, x, weight, bias, stride, padding, dilation, groups)


@lowers("conv_transpose1d conv_transpose2d conv_transpose3d")
def transposed(
    net: Network, x: Signal, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Signal:  # fmt: skip
    """Write terms for a transposed convolution: each tap sends every position to another."""
    if isinstance(weight, Signal):
        raise TrellisError("a convolution whose kernel is computed from the input")
    n = weight.dim() - 2
    size, kernel = x.shape[2:], weight.shape[2:]
    stride, padding, dilation = pair(stride, n), pair(padding, n), pair(dilation, n)
    more = pair(output_padding, n)
    out = [
        (size[d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel[d] - 1) + more[d] + 1
        for d in range(n)
    ]
    looped = _phases(net, x, weight, bias, out, stride, padding, dilation, groups)
    if looped is not None:
        return looped
    index = []  # per dimension: the output position of each (position, tap), −1 for none
    for d in range(n):
        at = torch.arange(size[d])[:, None] * stride[d] - padding[d]
        at = at + torch.arange(kernel[d]) * dilation[d]
        index.append(torch.where((at >= 0) & (at < out[d]), at, -1))
    where = grid(index, out).numpy().T  # (taps, places)
    flat_weight = weight.reshape(*weight.shape[:2], -1)
    entries = torch.nonzero(flat_weight)
    source, within, tap = entries.T.numpy()
    values = flat_weight[tuple(entries.T)].double().numpy()
    channel = source // (weight.shape[0] // groups) * weight.shape[1] + within
    goes = where[tap]  # (entries, places)
    real = goes >= 0
    units = x.ids.reshape(x.shape[1], -1).numpy()
    rows = channel[:, None] * math.prod(out) + goes
    channels = weight.shape[1] * groups
    y = net.sums(
        (1, channels, *out), rows[real], units[source][real],
        np.broadcast_to(values[:, None], goes.shape)[real],
    )  # fmt: skip
    return y if bias is None else net.each(y, shift=bias.double().numpy().reshape(-1, *[1] * n))


def _phases(
    net: Network, x: Signal, weight: Tensor, bias: Any, out: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], groups: int,
) -> Signal | None:  # fmt: skip
    """A transposed convolution as one loop for each place within its stride, or None.

    Output row ``y · stride + phase`` reads row ``y + (phase + padding − k · dilation) / stride`` by
    tap k, where that is a whole number.
    """
    planes = planes_of(x) if isinstance(net, PlaneNetwork) and len(out) <= 2 else None
    if planes is None or min(out) < 1:
        return None
    kernel, size = _two(weight.shape[2:], 1), _two(out, 1)
    step, pad, far = _two(stride, 1), _two(padding, 0), _two(dilation, 1)
    channels = weight.shape[1] * groups
    inward = weight.reshape(groups, -1, weight.shape[1], *kernel).transpose(1, 2)
    inward = inward.reshape(channels, -1, *kernel)  # as of a convolution: (out, in of a group, …)
    parts = []
    for phase in [(a, b) for a in reversed(range(step[0])) for b in reversed(range(step[1]))]:
        rows, columns = (-(-(size[d] - phase[d]) // step[d]) for d in (0, 1))
        places = (rows, columns)
        if min(places) < 1:
            continue
        window, offset, apart, chosen = [], [], [], inward
        for d in (0, 1):
            fits = [k for k in range(kernel[d]) if (phase[d] + pad[d] - k * far[d]) % step[d] == 0]
            fits = fits[::-1]  # ascending rows
            chosen = chosen.index_select(2 + d, torch.tensor(fits, dtype=torch.int64))
            window.append(max(len(fits), 1))
            offset.append((phase[d] + pad[d] - fits[0] * far[d]) // step[d] if fits else 0)
            apart.append(far[d] // math.gcd(far[d], step[d]))
        if chosen.numel() == 0:
            chosen = torch.zeros(*chosen.shape[:2], 1, 1)
            window, offset = [1, 1], [0, 0]
        parts.append(
            PlaneBlock(
                "conv", 0, (channels, *size), planes, places, (window[0], window[1]),
                *_taps(chosen, groups), offset=(offset[0], offset[1]),
                dilation=(apart[0], apart[1]), spread=step, start=phase,
                bias=np.zeros(0) if bias is None else bias.double().numpy().copy(),
            )
        )  # fmt: skip
    source = readable(net, planes, any(part.outside for part in parts))
    first = net.units
    for part in parts:
        part.source, part.first = source, first
        made = add_planes(net, part, (1, channels, *out))
    return made


def _tapped(
    net: Network, x: Signal, weight: Tensor, taps: Tensor, groups: int, out: Sequence[int]
) -> Signal:
    """Write the terms of a convolution; weight (output channels, channels per group, taps)."""
    places = math.prod(out)
    entries = torch.nonzero(weight)  # (entries, 3)
    channel, within, tap = entries.T.numpy()
    values = weight[tuple(entries.T)].double().numpy()
    source = channel // (weight.shape[0] // groups) * weight.shape[1] + within
    where = taps.numpy().T[tap]  # (entries, places)
    real = where >= 0
    units = x.ids.reshape(x.shape[1], -1).numpy()  # a batch of one
    rows = channel[:, None] * places + np.arange(places)[None, :]
    reads = units[source[:, None], np.maximum(where, 0)]
    weights = np.broadcast_to(values[:, None], where.shape)
    return net.sums((1, weight.shape[0], *out), rows[real], reads[real], weights[real])


def windows(x: Signal, taps: Tensor) -> tuple[Any, Any]:
    """Return rows and reads of a pooling with the same windows (places, taps) in every channel."""
    units = x.ids.reshape(x.shape[1], -1).numpy()
    channels, places = len(units), len(taps)
    where = np.broadcast_to(taps.numpy()[None], (channels, *taps.shape))
    rows = np.arange(channels * places).reshape(channels, places, 1)
    real = where >= 0
    reads = np.take_along_axis(units, np.maximum(where, 0).reshape(channels, -1), axis=1).reshape(
        where.shape
    )
    return np.broadcast_to(rows, where.shape)[real], reads[real]


# Pooling and upsampling by copying.


def _pool_taps(
    x: Signal, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Any:
    size = x.shape[2:]
    kernel, padding, dilation = pair(kernel, n), pair(padding, n), pair(dilation, n)
    stride = pair(stride, n) or kernel if stride is not None else kernel
    out = []
    for d in range(n):
        span = size[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1
        count = (-(-span // stride[d]) if ceil else span // stride[d]) + 1
        if ceil and (count - 1) * stride[d] >= size[d] + padding[d]:
            count -= 1
        out.append(count)
    index = [
        sliding(size[d], out[d], kernel[d], stride[d], padding[d], dilation[d]) for d in range(n)
    ]
    return grid(index, size), out


def _pool_looped(
    net: Network, x: Signal, kind: str, out: list[int], kernel: Any, stride: Any, padding: Any,
    dilation: Any, scale: float = 1.0,
) -> Signal | None:  # fmt: skip
    """A pooling as a loop over planes, all channels alike, or None."""
    n = len(x.shape) - 2
    planes = planes_of(x) if isinstance(net, PlaneNetwork) and n <= 2 else None
    if planes is None or min(out) < 1:
        return None
    kernel, padding, dilation = pair(kernel, n), pair(padding, n), pair(dilation, n)
    stride = pair(stride, n) or kernel if stride is not None else kernel
    rows = [1] * (2 - n)
    window, size = ((each[0], each[1]) for each in ([*rows, *kernel], [*rows, *out]))
    taps = np.arange(math.prod(window))
    made = PlaneBlock(
        kind, 0, (len(planes), *size), planes, size, window, taps,
        np.array([0, len(taps)]), np.ones(len(taps)) if kind == "conv" else np.zeros(0),
        shared=True, stride=(*rows, *stride), offset=(*[0] * (2 - n), *(-p for p in padding)),
        dilation=(*rows, *dilation), scale=np.full(len(planes), scale),
    )  # fmt: skip
    if kind == "peak" and made.outside and not non_negative(net, planes):
        return None
    made.source = readable(net, planes, made.outside)
    made.first = net.units
    return add_planes(net, made, (*x.shape[:2], *out))


@lowers("max_pool1d max_pool2d max_pool3d")
def max_pool(
    net: Network, x: Signal, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> Signal:  # fmt: skip
    taps, out = _pool_taps(x, len(x.shape) - 2, kernel, stride, padding, dilation, ceil_mode)
    looped = _pool_looped(net, x, "peak", out, kernel, stride, padding, dilation)
    if looped is not None:
        return looped
    rows, reads = windows(x, taps)
    return net.maxima((*x.shape[:2], *out), rows, reads)


@lowers("max_pool2d_with_indices max_pool3d_with_indices")
def max_pool_with_indices(net: Network, x: Signal, *args: Any, **named: Any) -> Any:
    return max_pool(net, x, *args, **named), None


@lowers("avg_pool1d avg_pool2d avg_pool3d")
def avg_pool(
    net: Network, x: Signal, kernel: Any, stride: Any = (), padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
) -> Signal:  # fmt: skip
    n = len(x.shape) - 2
    taps, out = _pool_taps(x, n, kernel, stride, padding, 1, ceil_mode)
    if ceil_mode and count_include_pad and any(pair(padding, n)):
        raise TrellisError("average pooling that is padded and rounded up")
    if not ceil_mode and (count_include_pad or not any(pair(padding, n))):
        size = divisor_override or taps.shape[1]
        looped = _pool_looped(net, x, "conv", out, kernel, stride, padding, 1, 1.0 / size)
        if looped is not None:
            return looped
    rows, reads = windows(x, taps)
    if divisor_override or (count_include_pad and any(pair(padding, n))):
        weights = np.full(len(rows), 1.0 / (divisor_override or taps.shape[1]))
    else:
        weights = 1.0 / np.bincount(rows)[rows]
    return net.sums((*x.shape[:2], *out), rows, reads, weights)


@lowers("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d")
def adaptive_avg(net: Network, x: Signal, size: Any) -> Signal:
    n = len(x.shape) - 2
    wanted = [s if s is not None else x.shape[2 + d] for d, s in enumerate(pair(size, n))]
    if all(size == 1 for size in wanted):
        looped = mean_of_planes(net, x, (*x.shape[:2], *wanted))
        if looped is not None:
            return looped
    if all(x.shape[2 + d] % wanted[d] == 0 for d in range(n)):
        kernel = [x.shape[2 + d] // wanted[d] for d in range(n)]
        looped = _pool_looped(net, x, "conv", wanted, kernel, kernel, 0, 1, 1.0 / math.prod(kernel))
        if looped is not None:
            return looped
    if math.prod(x.shape[2:]) >= LARGE * math.prod(wanted):
        for d in range(n - 1, 0, -1):  # windows are products of intervals: mean of means
            x = _averaged(net, x, [*x.shape[2 : 2 + d], wanted[d], *x.shape[3 + d :]])
    return _averaged(net, x, wanted)


def _averaged(net: Network, x: Signal, wanted: list[int]) -> Signal:
    size = x.shape[2:]
    if list(size) == wanted:
        return x
    taps = grid([adaptive(size[d], wanted[d]) for d in range(len(size))], size)
    rows, reads = windows(x, taps)
    return net.sums((*x.shape[:2], *wanted), rows, reads, 1.0 / np.bincount(rows)[rows])


@lowers("adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d")
def adaptive_max(net: Network, x: Signal, size: Any) -> tuple[Signal, None]:
    n = len(x.shape) - 2
    wanted = [s if s is not None else x.shape[2 + d] for d, s in enumerate(pair(size, n))]
    taps = grid([adaptive(x.shape[2 + d], wanted[d]) for d in range(n)], x.shape[2:])
    rows, reads = windows(x, taps)
    return net.maxima((*x.shape[:2], *wanted), rows, reads), None


@lowers("upsample_nearest1d upsample_nearest2d upsample_nearest3d")
def upsample(net: Network, x: Signal, size: Any, scales: Any = None, *rest: Any) -> Signal:
    """Copy units; torch's own upsampling of indices says which unit each entry copies."""
    if isinstance(scales, list | tuple):
        factors: Any = tuple(scales)
    else:
        factors = next((v for v in (scales, *rest) if isinstance(v, float)), None)
    given = {"size": tuple(size)} if size is not None else {"scale_factor": factors}
    places = torch.arange(x.ids[0, 0].numel(), dtype=torch.float64).reshape(1, 1, *x.shape[2:])
    taken = nn.functional.interpolate(places, mode="nearest", **given).long()
    if (repeated := _repeated(net, x, taken)) is not None:
        return repeated
    units = x.ids.reshape(*x.shape[:2], -1)
    return Signal(units[:, :, taken.reshape(-1)].reshape(*x.shape[:2], *taken.shape[2:]))


def _repeated(net: Network, x: Signal, taken: torch.Tensor) -> Signal | None:
    """Whole multiples, as one loop of copies for each place within a multiple, or None."""
    planes = planes_of(x) if isinstance(net, PlaneNetwork) else None
    if planes is None:
        return None
    out = (*(1,) * (2 - len(taken.shape[2:])), *taken.shape[2:])
    size = planes.shape[1:]
    times = tuple(out[d] // size[d] for d in (0, 1))
    if times == (1, 1) or any(out[d] != times[d] * size[d] for d in (0, 1)):
        return None
    rows, columns = np.arange(out[0]) // times[0], np.arange(out[1]) // times[1]
    if not (taken.reshape(out).numpy() == rows[:, None] * size[1] + columns).all():
        return None
    source = readable(net, planes, False)
    first = net.units
    for start in [(a, b) for a in reversed(range(times[0])) for b in reversed(range(times[1]))]:
        part = PlaneBlock(
            "conv", first, (len(planes), *out), source, size, (1, 1), np.zeros(1, np.int64),
            np.array([0, 1]), np.ones(1), shared=True, spread=times, start=start, wiring=True,
        )  # fmt: skip
        made = add_planes(net, part, (*x.shape[:2], *taken.shape[2:]))
    return made
