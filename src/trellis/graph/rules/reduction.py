"""Sums, means and maxima over dimensions, and pooling and upsampling over windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..builder import Builder
from ..export import aten, rules_for
from ..steps import Signal, Value, Window, adaptive, bent, from_pattern, grid, pair, sliding
from .elementwise import as_signal, either


def _dims(x: Signal, dim: Any) -> list[int]:
    if dim is None or dim == []:
        return list(range(x.ndim))
    return [dim] if isinstance(dim, int) else list(dim)


@rules_for(aten("sum mean nansum nanmean"))
def total(
    build: Builder, x: Signal, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Signal:
    return build.total(x, _dims(x, dim), keepdim)


@rules_for(aten("amax amin any all count_nonzero"))
def largest(
    build: Builder, x: Signal, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Signal:
    return build.reduce(x, _dims(x, dim), keepdim)


@rules_for(aten("max min median mode nanmedian"))
def extreme(
    build: Builder, x: Signal, dim: Any = None, keepdim: bool = False
) -> Signal | tuple[Signal, Signal]:
    if dim is not None and not isinstance(dim, int):
        return either(build, x, dim)
    out = build.reduce(x, _dims(x, dim), keepdim)
    return out if dim is None else (out, out)


@rules_for(aten("argmax argmin"))
def arg(build: Builder, x: Signal, dim: int | None = None, keepdim: bool = False) -> Signal:
    return build.bias(build.reduce(x, _dims(x, dim), keepdim))


@rules_for(aten("logsumexp"))
def logsumexp(build: Builder, x: Signal, dim: Any, keepdim: bool = False) -> Signal:
    return build.bias(build.reduce(x, _dims(x, dim), keepdim))


@rules_for(aten("var std"))
def spread(
    build: Builder, x: Signal, dim: Any = None, *args: Any, keepdim: bool = False, **kwargs: Any
) -> Signal:
    """Measure spread: only differences between entries matter, not a number added to all.

    ``dim`` is a bool in the overload ``var(x, unbiased)``; ``keepdim`` may come by position, as in
    ``var(x, dim, unbiased, keepdim)``.
    """
    dims = _dims(x, None if isinstance(dim, bool) else dim)
    keepdim = bool(args[1]) if len(args) > 1 else keepdim
    return build.reduce(build.centre(x, dims) if dims else x, dims, keepdim)


@rules_for(aten("var_mean std_mean"))
def spread_and_mean(
    build: Builder, x: Signal, dim: Any = None, *args: Any, keepdim: bool = False, **kwargs: Any
) -> tuple[Signal, Signal]:
    dims = None if isinstance(dim, bool) else dim
    keepdim = bool(args[1]) if len(args) > 1 else keepdim
    return spread(build, x, dims, keepdim=keepdim), total(build, x, dims, keepdim)


@rules_for(aten("linalg_vector_norm norm"))
def norm(
    build: Builder,
    x: Signal,
    order: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    **kwargs: Any,
) -> Signal:
    return build.reduce(x, _dims(x, dim), keepdim)


@rules_for(aten("sort"))
def sort(build: Builder, x: Signal, dim: int = -1, *args: Any, **kwargs: Any) -> Any:
    """Sort along ``dim``: each entry of the result may come from any entry."""
    out = build.mix(x, [dim])
    return out, build.bias(out)


@rules_for(aten("topk"))
def topk(
    build: Builder, x: Signal, k: int, dim: int = -1, *args: Any, **kwargs: Any
) -> tuple[Signal, Signal]:
    out = build.gather(build.mix(x, [dim]), dim, torch.arange(k))
    return out, build.bias(out)


@rules_for(aten("cummax cummin"))
def cumulative_extreme(build: Builder, x: Signal, dim: int) -> tuple[Signal, Signal]:
    out = cumulative(build, x, dim)
    return out, out


@rules_for(aten("cumsum logcumsumexp"))
def cumulative(build: Builder, x: Signal, dim: int, **kwargs: Any) -> Signal:
    """Accumulate along ``dim``: entry i reads entries 0 to i."""
    n = x.shape[dim]
    reads = torch.arange(n)[None].expand(n, n)
    reads = torch.where(reads <= torch.arange(n)[:, None], reads, -1)
    return build.reduce(build.gather(x, dim, reads), [dim % x.ndim + 1])


Ints = int | Sequence[int]


def pooled(
    build: Builder, x: Signal, windows: list[Tensor], regular: Window | None = None
) -> Signal:
    """Join the units of each window over the last ``len(windows)`` dimensions.

    ``regular`` describes the same windows, if they slide at a fixed stride.
    """
    n = len(windows)
    lead, size = x.shape[:-n], x.shape[-n:]
    flat = build.reshape(x, (*lead, math.prod(size)))
    index = grid(windows, size)
    if index.shape[1] == 1:
        out = build.gather(flat, -1, index[:, 0])
    else:
        out = build.reduce(build.gather(flat, -1, index, regular), [-1])
    return build.reshape(out, (*lead, *(w.shape[0] for w in windows)))


def _window_count(size: int, k: int, t: int, p: int, d: int, ceil: bool) -> int:
    reach = size + 2 * p - d * (k - 1) - 1
    out = (-(-reach // t) if ceil else reach // t) + 1
    # With ceil_mode, the last window must start inside the input or its left padding.
    return out - 1 if ceil and (out - 1) * t >= size + p else out


def _pool(
    build: Builder,
    x: Signal,
    n: int,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil: bool,
) -> Signal:
    kernel = pair(kernel, n)
    stride = pair(stride, n) or kernel
    padding, dilation = pair(padding, n), pair(dilation, n)
    ways = list(zip(x.shape[-n:], kernel, stride, padding, dilation, strict=True))
    places = [_window_count(s, k, t, p, d, ceil) for s, k, t, p, d in ways]
    windows = [sliding(s, o, k, t, p, d) for (s, k, t, p, d), o in zip(ways, places, strict=True)]
    found = (tuple(v) for v in (x.shape[-n:], places, kernel, stride, padding, dilation))
    return pooled(build, x, windows, Window(*found))


def _register(n: int) -> None:
    @rules_for(aten(f"max_pool{n}d"))
    def max_pool(
        build: Builder,
        x: Signal,
        kernel: Ints,
        stride: Ints = (),
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
    ) -> Signal:
        return _pool(build, x, n, kernel, stride, padding, dilation, ceil_mode)

    @rules_for(aten(f"max_pool{n}d_with_indices"))
    def max_pool_indices(build: Builder, *args: Any, **kwargs: Any) -> tuple[Signal, Signal]:
        out = max_pool(build, *args, **kwargs)
        return out, out

    @rules_for(aten(f"avg_pool{n}d"))
    def avg_pool(
        build: Builder,
        x: Signal,
        kernel: Ints,
        stride: Ints = (),
        padding: Ints = 0,
        ceil_mode: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> Signal:
        return _pool(build, x, n, kernel, stride, padding, 1, ceil_mode)

    @rules_for(aten(f"adaptive_avg_pool{n}d _adaptive_avg_pool{n}d"))
    def adaptive_avg_pool(build: Builder, x: Signal, size: Ints) -> Signal:
        wanted = pair(size, n)
        if all(o == 1 for o in wanted):
            lead = x.shape[:-n]
            return build.reshape(build.total(x, range(-n, 0)), (*lead, *wanted))
        return pooled(build, x, [adaptive(s, o) for s, o in zip(x.shape[-n:], wanted, strict=True)])

    @rules_for(aten(f"adaptive_max_pool{n}d"))
    def adaptive_max_pool(build: Builder, x: Signal, size: Ints) -> tuple[Signal, Signal]:
        out = adaptive_avg_pool(build, bent(x), size)
        return out, out


for _n in (1, 2, 3):
    _register(_n)


def _linear_pattern(mode: str, size: int, out: int, align: bool, scale: float | None) -> Tensor:
    """Return which of ``size`` positions each of ``out`` positions reads.

    Found by resampling every unit vector.
    """
    basis = torch.eye(size, dtype=torch.float64)[:, None]
    kwargs: dict[str, Any] = {"size": out} if scale is None else {"scale_factor": scale}
    if mode == "bicubic":
        kwargs = {"size": (out, 1)} if scale is None else {"scale_factor": (scale, 1.0)}
        result = functional.interpolate(
            basis[..., None], mode="bicubic", align_corners=align, **kwargs
        )[:, 0, :, 0]
    elif mode in ("nearest", "nearest-exact"):
        result = functional.interpolate(basis, mode=mode, **kwargs)[:, 0]
    else:
        result = functional.interpolate(basis, mode="linear", align_corners=align, **kwargs)[:, 0]
    return from_pattern(result.t() != 0)


def _upsample(mode: str, n: int) -> None:
    name = {
        "linear": {1: "linear1d", 2: "bilinear2d", 3: "trilinear3d"},
        "bicubic": {2: "bicubic2d"},
        "nearest": {i: f"nearest{i}d" for i in (1, 2, 3)},
        "nearest-exact": {i: f"_nearest_exact{i}d" for i in (1, 2, 3)},
    }[mode][n]
    name = f"_upsample{name}" if name.startswith("_") else f"upsample_{name}"

    @rules_for(aten(name))
    def upsample(build: Builder, x: Signal, size: Any = None, *args: Any, **kwargs: Any) -> Signal:
        rest = [kwargs.get("align_corners"), kwargs.get("scale_factors")]
        flags = [a for a in args if isinstance(a, bool)]
        align = bool(rest[0] if rest[0] is not None else (flags[0] if flags else False))
        lists = [a for a in args if isinstance(a, list | tuple)]
        factors = rest[1] if rest[1] is not None else (lists[0] if lists else None)
        numbers = [a for a in args if isinstance(a, float)]
        factors = factors if factors is not None else (numbers or None)
        old = x.shape[-n:]
        scales: list[float | None] = [None] * n
        if size is not None:
            new = pair(size, n)
        else:
            scales = [float(f) for f in factors or ()]
            new = [int(s * f) for s, f in zip(old, scales, strict=True) if f is not None]
        windows = [
            _linear_pattern(mode, s, o, align, f) for s, o, f in zip(old, new, scales, strict=True)
        ]
        return pooled(build, x, windows)


for _mode, _ranks in {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "linear": (1, 2, 3),
    "bicubic": (2,),
}.items():
    for _n in _ranks:
        _upsample(_mode, _n)


@rules_for(aten("grid_sampler_2d grid_sampler_3d grid_sampler"))
def grid_sampler(
    build: Builder, x: Value, where: Value, interpolation: int, padding: int, align: bool
) -> Signal:
    """x (N, C, ∏ sizes), places (N, ∏ out, dimensions) to (N, C, ∏ out).

    Places that are computed may lie anywhere: each output reads its whole channel, through a gate
    of its place. At constant places it reads the few entries around.
    """
    x = as_signal(build, x)
    (batch, channels), size = x.shape[:2], x.shape[2:]
    out = tuple(where.shape[1:-1])
    if not isinstance(where, Tensor):
        place = build.bias(build.reduce(as_signal(build, where), [-1]))
        channel = build.reduce(x, range(2, x.ndim), keepdim=True)
        return build.gate(channel, build.reshape(place, (batch, 1, *out)))
    sample = getattr(torch, f"grid_sampler_{len(size)}d")
    parts = []
    for one, grid_of_one in enumerate(where.double().split(1)):
        read = []
        for some in torch.eye(math.prod(size), dtype=torch.float64).split(256):
            basis = some.reshape(1, len(some), *size)
            found = sample(basis, grid_of_one, interpolation, padding, align)
            read.append(found.reshape(len(some), -1) != 0)
        flat = build.reshape(
            build.gather(x, 0, torch.tensor([one])), (1, channels, math.prod(size))
        )
        index = from_pattern(torch.cat(read).t())
        parts.append(build.reduce(build.gather(flat, -1, index), [-1]))
    return build.reshape(build.cat(parts, 0), (batch, channels, *out))
