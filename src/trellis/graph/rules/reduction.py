"""Sums, means, maxima and the like."""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..registry import aten, rules_for
from ..steps import Signal
from .arithmetic import either


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
    """Adding the same number to all entries changes nothing: only what differs passes.

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
    """Any place may come to stand anywhere along ``dim``."""
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
    """Place i reads places 0..i."""
    n = x.shape[dim]
    reads = torch.arange(n)[None].expand(n, n)
    reads = torch.where(reads <= torch.arange(n)[:, None], reads, -1)
    return build.reduce(build.gather(x, dim, reads), [dim % x.ndim + 1])
