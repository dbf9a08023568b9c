"""Data movement: each output unit is one input unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import TrellisError
from ..builder import Builder, as_shape
from ..registry import KEEPS, MOVES, STRAIGHT, aten, rules_for
from ..steps import Signal, Weight, leaves
from .elementwise import as_signal

MOVES.update(
    aten(
        "view reshape _unsafe_view flatten unflatten permute transpose t numpy_T unsqueeze squeeze "
        "expand expand_as view_as reshape_as slice select index_select narrow flip roll diagonal "
        "unbind split split_with_sizes chunk tensor_split repeat repeat_interleave tile movedim "
        "moveaxis swapaxes adjoint mT mH T gather index unfold pixel_shuffle pixel_unshuffle "
        "channel_shuffle as_strided squeeze_copy rot90 take"
    )
)
STRAIGHT.update(
    MOVES,
    aten(
        "add sub rsub mul div linear matmul mm bmm mv addmm baddbmm einsum cat concat stack neg "
        "conv1d conv2d conv3d convolution sum mean adaptive_avg_pool1d adaptive_avg_pool2d "
        "adaptive_avg_pool3d layer_norm group_norm instance_norm batch_norm rms_norm softmax "
        "_softmax _safe_softmax scaled_dot_product_attention native_layer_norm native_group_norm "
        "clone detach contiguous alias dropout lift_fresh lift_fresh_copy to _to_copy type_as "
        "float double half bfloat16 nan_to_num concatenate"
    ),
)
KEEPS.update(
    aten(
        "to _to_copy float double half bfloat16 type_as clone contiguous detach alias lift_fresh "
        "dropout neg abs tanh relu leaky_relu gelu silu"
    )
)


@rules_for(aten("view reshape _unsafe_view reshape_as view_as"))
def reshape(build: Builder, x: Signal, shape: Any) -> Signal:
    sizes = getattr(shape, "shape", shape)
    return build.reshape(x, as_shape(sizes, math.prod(x.shape)))


@rules_for(aten("flatten"))
def flatten(build: Builder, x: Signal, start: int = 0, end: int = -1) -> Signal:
    a, b = start % max(x.ndim, 1), end % max(x.ndim, 1)
    return build.reshape(x, (*x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :]))


@rules_for(aten("unflatten"))
def unflatten(build: Builder, x: Signal, dim: int, sizes: Sequence[int]) -> Signal:
    dim %= x.ndim
    return build.reshape(x, (*x.shape[:dim], *as_shape(sizes, x.shape[dim]), *x.shape[dim + 1 :]))


@rules_for(aten("permute"))
def permute(build: Builder, x: Signal, dims: Sequence[int]) -> Signal:
    return build.permute(x, dims)


@rules_for(aten("transpose t numpy_T T mT swapaxes adjoint"))
def transpose(build: Builder, x: Signal, a: int | None = None, b: int | None = None) -> Signal:
    order = list(range(x.ndim))
    if a is None or b is None:
        return build.permute(x, order[:-2] + order[-2:][::-1])
    order[a], order[b] = order[b], order[a]
    return build.permute(x, order)


@rules_for(aten("unsqueeze"))
def unsqueeze(build: Builder, x: Signal, dim: int) -> Signal:
    dim %= x.ndim + 1
    return build.reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))


@rules_for(aten("squeeze"))
def squeeze(build: Builder, x: Signal, dim: Any = None) -> Signal:
    dims = range(x.ndim) if dim is None else ([dim] if isinstance(dim, int) else dim)
    gone = {d % x.ndim for d in dims if x.ndim and x.shape[d] == 1}
    return build.reshape(x, [n for d, n in enumerate(x.shape) if d not in gone])


@rules_for(aten("expand expand_as"))
def expand(build: Builder, x: Signal, shape: Any, implicit: bool = False) -> Signal:
    return build.expand(x, getattr(shape, "shape", shape))


@rules_for(aten("slice"))
def slice_(
    build: Builder,
    x: Signal,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Signal:
    places = torch.arange(x.shape[dim])[start:end:step]
    return x if len(places) == x.shape[dim] else build.gather(x, dim, places)


@rules_for(aten("narrow"))
def narrow(build: Builder, x: Signal, dim: int, start: int, length: int) -> Signal:
    return build.gather(x, dim, torch.arange(x.shape[dim])[start : start + length])


@rules_for(aten("select"))
def select(build: Builder, x: Signal, dim: int, index: int) -> Signal:
    dim %= x.ndim
    out = build.gather(x, dim, torch.arange(x.shape[dim])[index][None])
    return build.reshape(out, x.shape[:dim] + x.shape[dim + 1 :])


@rules_for(aten("index_select"))
def index_select(build: Builder, x: Signal, dim: int, index: Tensor) -> Signal:
    return build.gather(x, dim, torch.arange(x.shape[dim])[index.cpu().reshape(-1)])


@rules_for(aten("cat concat concatenate"))
def cat(build: Builder, xs: Sequence[Any], dim: int = 0) -> Signal:
    parts = [x for x in xs if tuple(x.shape) != (0,)]
    return build.cat([as_signal(build, x) for x in parts], dim)


@rules_for(aten("stack"))
def stack(build: Builder, xs: Sequence[Any], dim: int = 0) -> Signal:
    parts = [as_signal(build, x) for x in xs]
    return build.cat([unsqueeze(build, x, dim) for x in parts], dim % (parts[0].ndim + 1))


def _cut(build: Builder, x: Signal, dim: int, sizes: Sequence[int]) -> list[Signal]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [narrow(build, x, dim, a, n) for a, n in zip(starts, sizes, strict=True)]


@rules_for(aten("split split_with_sizes unsafe_split"))
def split(build: Builder, x: Signal, size: Any, dim: int = 0) -> list[Signal]:
    n = x.shape[dim]
    sizes = [min(size, n - a) for a in range(0, n, size)] if isinstance(size, int) else list(size)
    return _cut(build, x, dim, sizes)


@rules_for(aten("chunk"))
def chunk(build: Builder, x: Signal, chunks: int, dim: int = 0) -> list[Signal]:
    return split(build, x, -(-x.shape[dim] // chunks), dim)


@rules_for(aten("unbind"))
def unbind(build: Builder, x: Signal, dim: int = 0) -> list[Signal]:
    return [select(build, x, dim, i) for i in range(x.shape[dim])]


@rules_for(aten("constant_pad_nd pad"))
def pad(
    build: Builder, x: Signal, pads: Sequence[int], mode: Any = "constant", value: Any = None
) -> Signal:
    """Pad: zero padding reads nothing; other kinds of padding read units of the input."""
    fill, mode = (value, mode) if isinstance(mode, str) else (mode, "constant")
    out = x
    for i in range(len(pads) // 2):
        dim, before, after = x.ndim - 1 - i, pads[2 * i], pads[2 * i + 1]
        n = x.shape[dim]
        places = torch.arange(-before, n + after)
        if mode == "replicate":
            places = places.clamp(0, n - 1)
        elif mode == "reflect":
            places = (n - 1) - ((n - 1) - places.abs()).abs()
        elif mode == "circular":
            places = places % n
        else:
            places = torch.where((places >= 0) & (places < n), places, -1)
        if before or after:
            out = build.gather(out, dim, places)
    if fill:
        inside = torch.nn.functional.pad(torch.ones(x.shape), list(pads)) != 0
        out = build.bias(out, ~inside)
    return out


@rules_for(aten("reflection_pad1d reflection_pad2d reflection_pad3d"))
def reflect(build: Builder, x: Signal, pads: Sequence[int]) -> Signal:
    return pad(build, x, pads, "reflect")


@rules_for(aten("replication_pad1d replication_pad2d replication_pad3d"))
def replicate(build: Builder, x: Signal, pads: Sequence[int]) -> Signal:
    return pad(build, x, pads, "replicate")


FLOATING = (torch.ops.aten.im2col,)  # torch implements these for floating point only


def move_generic(op: Any) -> Any:
    """Return a rule for a pure data movement: run the operation on the indices of the units."""

    def rule(build: Builder, x: Signal, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(v, Signal | Weight) for v in leaves([args, kwargs])):
            raise TrellisError(
                "places that are computed from activations or parameters are not traced: which "
                "unit is read must not depend on values"
            )
        # Indices count from one, so that a zero from padding becomes index −1: no unit.
        places = torch.arange(1, math.prod(x.shape) + 1).reshape(x.shape)
        moved = op(places.double() if op in FLOATING else places, *args, **kwargs)
        flat = build.reshape(x, (math.prod(x.shape),))

        def read(index: Tensor) -> Signal:
            index = index.to(torch.int64) - 1
            return build.reshape(build.gather(flat, 0, index.reshape(-1)), tuple(index.shape))

        return read(moved) if isinstance(moved, Tensor) else [read(m) for m in moved]

    return rule


for _name in [
    "flip",
    "roll",
    "diagonal",
    "repeat",
    "repeat_interleave",
    "tile",
    "unfold",
    "pixel_shuffle",
    "pixel_unshuffle",
    "channel_shuffle",
    "movedim",
    "moveaxis",
    "rot90",
    "as_strided",
    "gather",
    "index",
    "take",
    "tensor_split",
    "im2col",
]:
    _packet = getattr(torch.ops.aten, _name, None)
    if _packet is not None:
        rules_for(aten(_name))(move_generic(_packet))
