"""Pooling and upsampling by copying."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from ....errors import TrellisError
from ....graph.steps import adaptive, grid, pair, sliding
from ..network import Network, Signal, lowers
from ..planes import PlaneBlock, PlaneNetwork, add_planes, non_negative, planes_of, readable
from .arithmetic import LARGE, mean_of_planes
from .convolution import windows


def _taps(
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


def _looped(
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
    taps, out = _taps(x, len(x.shape) - 2, kernel, stride, padding, dilation, ceil_mode)
    looped = _looped(net, x, "peak", out, kernel, stride, padding, dilation)
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
    taps, out = _taps(x, n, kernel, stride, padding, 1, ceil_mode)
    if ceil_mode and count_include_pad and any(pair(padding, n)):
        raise TrellisError("average pooling that is padded and rounded up")
    if not ceil_mode and (count_include_pad or not any(pair(padding, n))):
        size = divisor_override or taps.shape[1]
        looped = _looped(net, x, "conv", out, kernel, stride, padding, 1, 1.0 / size)
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
        looped = _looped(net, x, "conv", wanted, kernel, kernel, 0, 1, 1.0 / math.prod(kernel))
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
