"""Data movement: views, selections, embeddings and message passing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import TrellisError
from ..builder import Builder, as_shape, invert
from ..export import KEEPS, LOOKUPS, MOVES, STRAIGHT, aten, rules_for
from ..steps import Signal, Source, Value, Weight, leaves
from .elementwise import as_signal

# Each output unit is one input unit.


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


# Operations that read or write at indices: embeddings, message passing, assignments.


BAGS = aten("_embedding_bag _embedding_bag_forward_only embedding_bag")
LOOKUPS.update(aten("embedding"), BAGS)


@rules_for(aten("embedding"))
def embedding(build: Builder, weight: Value, ids: Value, *args: Any, **kwargs: Any) -> Signal:
    """Look up token ids in a table (V, D).

    Token ids that come from the input are one-hot vectors, so a lookup is a product with the table.
    Where the tracer tries tokens one at a time, it is a product with the row of each token.
    """
    if not isinstance(ids, Signal):
        table = as_signal(build, weight)
        assert isinstance(ids, Tensor)
        out = build.gather(table, 0, ids.reshape(-1))
        return build.reshape(out, (*ids.shape, table.shape[1]))
    if not isinstance(weight, Weight):
        raise TrellisError("an embedding whose table is itself computed is not traced")
    vocabulary, width = weight.shape
    count = math.prod(ids.shape)
    for source in _sources(build, ids):
        build.vocabularies[source] = min(vocabulary, build.vocabularies.get(source, vocabulary))
    if build.one_row and ids.example is not None:
        rows = ids.example.reshape(-1)
        if not bool(((rows >= 0) & (rows < vocabulary)).all()):
            raise TrellisError(f"a token is not in a table of {vocabulary} rows")
        token = build.reshape(ids, (count, 1, 1))
        out = build.contract(token, weight.moved(lambda t: t[rows][:, :, None]))
        return build.reshape(out, (*ids.shape, width))
    hot = build.expand(build.reshape(ids, (1, count, 1)), (1, count, vocabulary))
    out = build.contract(hot, weight.moved(lambda t: t.t()[None]))
    return build.reshape(out, (*ids.shape, width))


@rules_for(BAGS)
def embedding_bag(
    build: Builder,
    weight: Value,
    ids: Value,
    offsets: Value,
    scale_by_frequency: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Value | None = None,
    last: bool = False,
    padding: int | None = None,
) -> tuple[Signal, ...]:
    """The sum, mean or maximum of the rows of each bag: ids (n), offsets (bags), out (bags, D).

    Where bags begin is structure. What a bag holds at the row ``padding`` is left out.
    """
    rows = embedding(build, weight, ids)
    if weights is not None:
        column = as_signal(build, weights)
        rows = build.gate(rows, build.reshape(column, (*column.shape, 1)))
    given = ids.example if isinstance(ids, Signal) else ids
    begins = offsets.example if isinstance(offsets, Signal) else offsets
    if not isinstance(begins, Tensor):
        raise TrellisError("embedding_bag: offsets that are computed from activations")
    starts = begins.reshape(-1).tolist() + ([] if last else [rows.shape[0]])
    bags = [list(range(a, b)) for a, b in itertools.pairwise(starts)]
    if padding is not None and padding >= 0 and isinstance(given, Tensor):
        bags = [[i for i in bag if int(given.reshape(-1)[i]) != padding] for bag in bags]
    reads = torch.full((len(bags), max(map(len, bags), default=0) or 1), -1)
    for place, bag in enumerate(bags):
        reads[place, : len(bag)] = torch.tensor(bag, dtype=torch.int64)
    out = build.reduce(build.gather(rows, 0, reads), [1])
    none = build.nothing((0,))
    return out, none, none, none


def _sources(build: Builder, x: Signal) -> set[int]:
    """Return the model inputs from which a signal is computed."""
    found, seen, waiting = set(), set(), [x.id]
    while waiting:
        step = build.steps[waiting.pop()]
        if step.out.id in seen:
            continue
        seen.add(step.out.id)
        if isinstance(step, Source) and step.depends:
            found.add(step.out.id)
        waiting += [operand.id for operand in step.operands]
    return found


def send(build: Builder, into: Value, target: Tensor, source: Value) -> Signal:
    """Add ``source`` to ``into`` at flat positions ``target``, one for each unit of ``source``."""
    shape = tuple(into.shape)
    size = math.prod(shape)
    src = as_signal(build, source)
    src = build.reshape(build.expand(src, tuple(target.shape)), (math.prod(target.shape),))
    reads = invert(target.cpu(), size)
    arrived = build.reshape(build.reduce(build.gather(src, 0, reads), [1]), shape)
    if isinstance(into, Tensor) and not bool((into != 0).any()):
        return arrived
    return build.join(as_signal(build, into), arrived)


def flat_target(shape: tuple[int, ...], dim: int, index: Tensor) -> Tensor:
    """Return flat positions in ``shape``, where ``index`` replaces the index of dimension ``dim``.

    >>> flat_target((3, 2), 0, torch.tensor([[2, 0]]))
    tensor([[4, 1]])
    """
    dim %= len(shape)
    grid = torch.meshgrid(*(torch.arange(n) for n in index.shape), indexing="ij")
    flat = torch.zeros(index.shape, dtype=torch.int64)
    for d, n in enumerate(shape):
        flat = flat * n + (index.cpu() if d == dim else grid[d])
    return flat


def _scatter_target(into: Value, dim: int, index: Value) -> Tensor:
    if not isinstance(index, Tensor):
        raise TrellisError("scatter: an index that is computed from activations is not traced")
    return flat_target(tuple(into.shape), dim, index)


@rules_for(aten("scatter_add scatter_add_"))
def scatter_add(build: Builder, into: Value, dim: int, index: Value, source: Value) -> Signal:
    return scatter(build, into, dim, index, source, reduce="add")


@rules_for(aten("scatter scatter_"))
def scatter(
    build: Builder,
    into: Value,
    dim: int,
    index: Value,
    source: Value | float,
    reduce: str | None = None,
) -> Signal:
    """Overwrite entries; with ``reduce``, add to the old entries or multiply them."""
    target = _scatter_target(into, dim, index)
    value = torch.tensor(source) if isinstance(source, int | float) else source
    if len(value.shape) and tuple(value.shape) != tuple(target.shape):  # the rest is not read
        value = as_signal(build, value)
        for d, n in enumerate(target.shape):
            value = build.gather(value, d, torch.arange(n))
    return _overwrite(build, into, target, value, accumulate=reduce is not None)


@rules_for(aten("scatter_reduce scatter_reduce_"))
def scatter_reduce(
    build: Builder,
    into: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> Signal:
    return scatter(build, into, dim, index, source, reduce if include_self else None)


@rules_for(aten("index_add index_add_"))
def index_add(
    build: Builder, into: Value, dim: int, index: Tensor, source: Value, **kwargs: Any
) -> Signal:
    dim %= len(into.shape)
    shape = [1] * len(into.shape)
    shape[dim] = -1
    full = index.cpu().reshape(shape).expand(tuple(source.shape))
    return send(build, into, flat_target(tuple(into.shape), dim, full), source)


@rules_for(aten("index_put index_put_ _unsafe_index_put"))
def index_put(
    build: Builder,
    into: Value,
    indices: list[Tensor | None],
    source: Value,
    accumulate: bool = False,
) -> Signal:
    """Overwrite entries at constant positions, or add to them if ``accumulate`` is set."""
    shape = tuple(into.shape)
    places = torch.arange(math.prod(shape)).reshape(shape)
    target = places[tuple(slice(None) if i is None else i.cpu() for i in indices)]
    return _overwrite(build, into, target, source, accumulate)


@rules_for(aten("select_scatter slice_scatter"))
def view_scatter(build: Builder, into: Value, source: Value, dim: int, *where: Any) -> Signal:
    places = torch.arange(math.prod(into.shape)).reshape(tuple(into.shape))
    if len(where) == 1:
        target = places.select(dim, where[0])
    else:
        cut = [slice(None)] * len(into.shape)
        cut[dim] = slice(*where)
        target = places[tuple(cut)]
    return _overwrite(build, into, target, source, False)


@rules_for(aten("diagonal_scatter"))
def diagonal_scatter(
    build: Builder, into: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Signal:
    places = torch.arange(math.prod(into.shape)).reshape(tuple(into.shape))
    return _overwrite(build, into, places.diagonal(offset, dim1, dim2), source, False)


@rules_for(aten("copy"))
def copy(build: Builder, into: Value, source: Value, non_blocking: bool = False) -> Signal:
    """Compute ``into[...] = source``: only the shape of ``into`` matters."""
    return build.expand(as_signal(build, source), tuple(into.shape))


def _overwrite(
    build: Builder, into: Value, target: Tensor, source: Value, accumulate: bool
) -> Signal:
    if not accumulate:
        keep = torch.ones(math.prod(into.shape), dtype=torch.bool)
        keep[target.reshape(-1)] = False
        keep = keep.reshape(tuple(into.shape))
        into = (
            into * keep if isinstance(into, Tensor) else build.block(as_signal(build, into), keep)
        )
    return send(build, into, target, source)
