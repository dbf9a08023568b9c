"""Operations that read or write at indices: embeddings, message passing, assignments."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from ...errors import TrellisError
from ..builder import Builder, invert
from ..registry import LOOKUPS, aten, rules_for
from ..steps import Signal, Source, Value, Weight
from .elementwise import as_signal

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
