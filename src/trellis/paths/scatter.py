"""Move values between the weight of a contraction, (B, N, K), and its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ..graph.steps import Weight
from ..graph.trellis import Trellis, names_in
from .algebra import FEW, Boolean, MaxTimes, outer
from .kernels import at_once, on_cpu, through_each

BOOLEAN = Boolean()
BEST = MaxTimes(limit=1 << 62)


def draw(net: Trellis, weight: Weight, tensors: Mapping[str, Tensor]) -> Tensor:
    """Arrange entries of ``tensors`` (contiguous, in the parameters' shapes) as this weight does.

    The result is a view where possible. Places without a connection are zero.
    """
    if weight.is_view:
        assert weight.name is not None
        return _seen_as(weight, tensors[weight.name])
    out: Tensor | None = None
    for name in names_in(weight):
        source = tensors[name].reshape(-1)
        places = net.on(weight.carrier, source.device) - weight.offsets[name]
        mine = (places >= 0) & (places < source.numel())
        part = torch.where(mine, source[places.clamp(0, source.numel() - 1)], 0)
        out = (
            part.to(source.dtype) if out is None else torch.where(mine, part, out).to(source.dtype)
        )
    assert out is not None
    return out


def spread(
    net: Trellis, weight: Weight, w: Tensor, x: Tensor, g: Tensor, into: dict[str, Tensor]
) -> None:
    """Join max over r of x[b, r, k] · g[b, r, n] · w[b, n, k] into parameter-shaped tensors.

    If the weight is a whole parameter, the result is written in place, in pieces.
    """
    name = weight.name
    whole = (
        weight.is_view
        and 0 not in _strides(weight)
        and name is not None
        and (w.numel() == math.prod(net.connections[name]))
    )
    many = w.dtype == torch.bool and x.shape[1] > FEW
    if not whole or (many and (on_cpu(w) or not at_once(x.shape[1], w))):
        factor = outer(BOOLEAN if w.dtype == torch.bool else BEST, x, g, x.shape[1])
        values = (w & factor) if w.dtype == torch.bool else (w * factor).abs_()
        give(
            net,
            weight,
            values,
            into,
            torch.maximum if w.is_floating_point() else torch.logical_or,
            "amax",
        )
        return
    assert name is not None
    join = name in into
    if not join:
        into[name] = torch.empty(net.connections[name], dtype=w.dtype, device=w.device)
    target = _seen_as(weight, into[name])
    b, n, k = w.shape
    x, g = x.expand(b, -1, k), g.expand(b, -1, n)
    through_each(x, g, w, target, join)


def give(
    net: Trellis,
    weight: Weight,
    values: Tensor,
    into: dict[str, Tensor],
    join: Callable[[Tensor, Tensor], Tensor],
    reduce: str,
) -> None:
    """Join ``values`` (broadcastable to (B, N, K)) into parameter-shaped tensors.

    Names absent from ``into`` are written; ``reduce`` is the name that
    `Tensor.scatter_reduce_` has for the same join.
    """
    if weight.is_view and 0 not in _strides(weight):
        assert weight.name is not None
        shape = net.connections[weight.name]
        full = math.prod(weight.shape) == math.prod(shape)
        first = weight.name not in into
        if first:
            make = torch.empty if full else torch.zeros
            into[weight.name] = make(shape, dtype=values.dtype, device=values.device)
        target = _seen_as(weight, into[weight.name])
        target.copy_(values if first else join(target, values.expand(target.shape)))
        return
    flat = values.expand(weight.shape).reshape(-1)
    positions = net.on(weight.positions(), values.device).reshape(-1)
    for name in names_in(weight):
        size = math.prod(net.connections[name])
        if name not in into:
            into[name] = torch.zeros(
                net.connections[name], dtype=values.dtype, device=values.device
            )
        places = positions - weight.offsets[name]
        mine = (places >= 0) & (places < size)
        target = into[name].view(-1)
        if target.dtype == torch.bool:
            counts = torch.zeros(size, dtype=torch.int32, device=target.device)
            counts.index_add_(0, places[mine], flat[mine].to(torch.int32))
            target |= counts > 0
        else:
            target.scatter_reduce_(0, places[mine], flat[mine], reduce, include_self=True)


def _strides(weight: Weight) -> list[int]:
    view = weight.carrier
    return [s for s, n in zip(view.stride(), view.shape, strict=True) if n > 1]


def _seen_as(weight: Weight, tensor: Tensor) -> Tensor:
    """View a parameter-shaped, contiguous tensor as the weight does.

    The tensor may begin anywhere in its storage: parameters are often views of one long vector.
    """
    view = weight.carrier
    place = int(tensor.storage_offset()) + int(view.storage_offset())
    return tensor.as_strided(view.shape, view.stride(), place)
