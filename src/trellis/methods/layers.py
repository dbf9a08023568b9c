"""A trellis as layers: a chain of contractions, and the units that each unit leads to.

Walks need a chain of contractions. `layered` finds it, or raises an error that says where the
trellis branches. A `Layer` tells which connections leave a unit and where they lead, one unit at a
time. Uses are never expanded all at once: the paper's GCN has 6.7 million.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import TrellisError
from ..graph import steps
from ..graph.steps import Weight
from ..graph.trellis import Trellis, names_in

# The units of the last contraction that each place of a signal reads, through wires alone.
#
# Between two contractions there are only wires: reshapes, windows, pooling, biases. Composed, they
# give the units that lead to each place of a signal: zero (padding), one, or several (pooling,
# sums).


Units = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Reads:
    """``units`` (*shape of the signal, taps): flat indices of units of ``level``, -1 if unused.

    Level 0 is the input, level l the output of the l-th contraction.
    """

    level: int
    units: Units

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(np.prod(self.units.shape, dtype=np.int64))


def source(shape: Sequence[int], nonzero: NDArray[np.bool_]) -> Reads:
    """Return the reads of an input: its places are its units.

    >>> source((2, 2), np.array([[True, False]])).units[..., 0].tolist()
    [[0, -1], [2, -1]]
    """
    units = np.arange(np.prod(shape, dtype=np.int64), dtype=np.int32).reshape(shape)
    return Reads(0, np.where(nonzero, units, np.int32(-1))[..., None])


def output(shape: Sequence[int], level: int) -> Reads:
    """Return the reads of a contraction's output: every place is a unit."""
    whole = source(shape, np.ones((), bool))
    return Reads(level, whole.units)


def through(step: steps.Step, xs: Sequence[Reads | None]) -> Reads:
    """Return the reads of ``step.out`` from those of its inputs (None: a constant).

    The step is a wire. At least one input is not constant, and all others have the same level.
    """
    level = next(x.level for x in xs if x is not None)
    if isinstance(step, steps.Cat):
        return Reads(level, _cat(step, xs))
    if isinstance(step, steps.Join):
        parts = [x.units for x in xs if x is not None]
        return Reads(level, parts[0] if len(parts) == 1 else _trim(np.concatenate(parts, -1)))
    assert xs[0] is not None
    x = xs[0].units
    return Reads(level, _one(step, x))


def _one(step: steps.Step, x: Units) -> Units:
    taps = x.shape[-1]
    ndim = x.ndim - 1
    if isinstance(step, steps.Reshape):
        return x.reshape((*step.out.shape, taps))
    if isinstance(step, steps.Permute):
        return x.transpose((*step.dims, ndim))
    if isinstance(step, steps.Expand | steps.Bias):
        return np.broadcast_to(x, (*step.out.shape, taps))
    if isinstance(step, steps.Gather):
        index = step.index.numpy()
        found = np.take(x, np.maximum(index, 0), axis=step.dim)
        inside = (index >= 0).reshape(index.shape + (1,) * (ndim - step.dim))
        return np.where(inside, found, np.int32(-1))
    if isinstance(step, steps.Block):
        keep = np.broadcast_to(step.keep.cpu().numpy(), step.out.shape)
        return np.where(keep[..., None], x, np.int32(-1))
    if isinstance(step, steps.Reduce):
        rest = [d for d in range(ndim) if d not in step.dims]
        return _trim(x.transpose((*rest, *step.dims, ndim)).reshape((*step.out.shape, -1)))
    if isinstance(step, steps.Mix):
        rest = [d for d in range(ndim) if d not in step.dims]
        size = [1 if d in step.dims else x.shape[d] for d in range(ndim)]
        mixed = _trim(x.transpose((*rest, *step.dims, ndim)).reshape((*size, -1)))
        return np.broadcast_to(mixed, (*x.shape[:-1], mixed.shape[-1]))
    assert isinstance(step, steps.Fixed)  # by a constant: wires where it is not zero
    weight = step.matrix.cpu().numpy() != 0  # (B, N, K)
    b, m, k, _ = x.shape
    n = weight.shape[1]
    spread = np.where(weight[:, None, :, :, None], x[:, :, None], np.int32(-1))
    return _trim(spread.reshape(b, m, n, k * taps))


def _cat(step: steps.Cat, xs: Sequence[Reads | None]) -> Units:
    taps = max(x.units.shape[-1] for x in xs if x is not None)
    pieces = []
    for x, signal in zip(xs, step.xs, strict=True):
        piece = np.full((*signal.shape, taps), -1, np.int32)
        if x is not None:
            piece[..., : x.units.shape[-1]] = x.units
        pieces.append(piece)
    return np.concatenate(pieces, step.dim)


def _trim(units: Units) -> Units:
    """Return each unit once per place, the largest first, with as few taps as possible.

    >>> _trim(np.array([[3, -1, 3], [-1, 5, -1]], dtype=np.int32)).tolist()
    [[3], [5]]
    """
    if units.shape[-1] == 1:
        return units
    units = -np.sort(-units, axis=-1)
    again = units[..., 1:] == units[..., :-1]
    if again[units[..., 1:] >= 0].any():
        units[..., 1:][again] = -1
        units = -np.sort(-units, axis=-1)
    full = int((units >= 0).sum(-1).max(initial=1))
    return np.ascontiguousarray(units[..., : max(full, 1)])


Ints = NDArray[np.int32]  # large enough: see MOST
Floats = NDArray[np.float64]
MOST = 200_000_000  # uses; a larger walk takes hours and gigabytes


@dataclass(eq=False)
class Layer:
    """One contraction: slots (B, M, K) read tails, heads are (B, M, N), all as flat indices.

    ``places`` (B, N, K): the number of the connection at each entry, counted from
    `Layered.starts`; -1 if unused. ``reads`` (slots, taps): tails, -1 if unused. ``useful``: heads
    that lead to an output of the dense network. ``reached``: tails that an input leads to.
    """

    name: str
    shape: tuple[int, int, int, int]  # B, M, K, N
    places: Ints
    reads: Ints
    tails: int
    ascending: bool = False  # connection numbers of a slot increase along its heads

    def __post_init__(self) -> None:
        b, m, _, n = self.shape
        self.heads = b * m * n
        self.useful = np.ones(self.heads, bool)
        self.reached = np.ones(self.tails, bool)
        flat = self.reads.reshape(-1)
        taken = np.flatnonzero(flat >= 0)
        order = np.argsort(flat[taken], kind="stable")
        self.slots: Ints = (taken[order] // self.reads.shape[1]).astype(np.int32)
        counts = np.bincount(flat[taken], minlength=self.tails)
        self.first: list[int] = [0, *np.cumsum(counts).tolist()]
        self._n = np.arange(n, dtype=np.int32)

    @property
    def largest(self) -> int:
        """The size of the largest array over the layer's units."""
        return max(self.tails, self.heads, len(self.slots), len(self.reads))

    def seen(self, reached: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the heads that are reached from these tails."""
        b, m, k, _ = self.shape
        slots = np.append(reached, False)[self.reads].any(1).reshape(b, m, k)
        held = (self.places >= 0).astype(np.float32)  # (B, N, K)
        return (slots.astype(np.float32) @ held.transpose(0, 2, 1) > 0).reshape(-1)

    def leading(self, useful: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the tails that lead to these heads."""
        b, m, _, n = self.shape
        held = (self.places >= 0).astype(np.float32)
        slots = (useful.reshape(b, m, n).astype(np.float32) @ held > 0).reshape(-1)
        found = np.zeros(self.tails + 1, bool)
        found[self.reads[slots].reshape(-1)] = True
        return found[:-1]

    def values(self, flat: Floats) -> Floats:
        """Return the entries of a vector over all connections, as (B, N, K); 0 if unused."""
        found = flat[self.places]
        return found if self.ascending else np.where(self.places >= 0, found, 0.0)

    def settle(self, reached: NDArray[np.bool_], useful: NDArray[np.bool_]) -> None:
        """Set which tails are reached and which heads are useful."""
        self.reached, self.useful = reached, useful
        self._whole = bool(useful.all()) and bool((self.places >= 0).all())

    def row(self, tail: int) -> tuple[Ints, Ints]:
        """Return the uses that leave a tail: (connections, heads), sorted."""
        slots = self.slots[self.first[tail] : self.first[tail + 1]]
        _, m, k, n = self.shape
        if len(slots) == 1:
            at, column = divmod(int(slots[0]), k)
            connections = self.places[at // m, :, column]
            heads = at * n + self._n
        else:
            rows, columns = np.divmod(slots, k)
            connections = self.places[rows // m, :, columns].reshape(-1)
            heads = (rows[:, None] * n + self._n).reshape(-1)
        if not self._whole:
            keep = self.useful[heads] & (connections >= 0)
            connections, heads = connections[keep], heads[keep]
        if len(slots) > 1 or not self.ascending:
            order = np.lexsort((heads, connections))
            connections, heads = connections[order], heads[order]
        return connections, heads

    def column(self, head: int) -> tuple[Ints, Ints]:
        """Return the uses that enter a head: (connections, tails), sorted."""
        _, m, k, n = self.shape
        at, row = divmod(head, n)
        tails = self.reads[at * k : (at + 1) * k]  # (K, taps)
        connections = np.broadcast_to(self.places[at // m, row][:, None], tails.shape)
        keep = (tails >= 0) & (connections >= 0) & self.reached[tails]
        connections, found = connections[keep], tails[keep]
        order = np.lexsort((found, connections))
        return connections[order], found[order]


@dataclass(frozen=True, eq=False)
class Layered:
    """A network as a chain of layers.

    ``layers`` are in order. ``units`` counts the units of each level, from the input to the last
    contraction. ``starts`` is the number of the first connection of each parameter, ``total`` the
    number of connections. ``outputs`` (units of the output, taps): the units of the last level that
    each output reads.
    """

    layers: list[Layer]
    units: list[int]
    starts: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    total: int
    outputs: Ints

    def flat(self, tensors: Mapping[str, Tensor], missing: float) -> Floats:
        """Return parameter-shaped tensors as one vector over all connections."""
        out = np.full(self.total, missing)
        for name, start in self.starts.items():
            if name in tensors:
                values = tensors[name].detach().cpu().double().reshape(-1).numpy()
                out[start : start + len(values)] = values
        return out


def layered(net: Trellis) -> Layered:
    """Return the layers of a trellis.

    Raises:
        TrellisError: If the trellis is not a chain. The message says where it branches.

    >>> import torch
    >>> from trellis.graph.trellis import trace
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 4))
    >>> found = layered(trace(mlp, torch.zeros(1, 3)))
    >>> [layer.name for layer in found.layers], found.units
    (['0.weight', '1.weight'], [3, 2, 4])
    >>> connections, heads = found.layers[1].row(1)  # of the second hidden unit
    >>> connections.tolist(), heads.tolist()
    ([7, 9, 11, 13], [0, 1, 2, 3])
    """
    if "layered" not in net.cache:
        net.cache["layered"] = _layered(net)
    found: Layered = net.cache["layered"]
    return found


def refuse(reason: str) -> TrellisError:
    """Return the error for a network that cannot be walked."""
    return TrellisError(
        f"walks need one layer after another, but {reason}; "
        'use method="viterbi", which works for any graph'
    )


def _layered(net: Trellis) -> Layered:
    if max(net.uses, net.total) > MOST:
        raise refuse(f"{net.uses:,} uses of connections are too many to walk (at most {MOST:,})")
    if len(net.outputs) != 1:
        raise refuse(f"the model has {len(net.outputs)} outputs")
    starts: dict[str, int] = {}
    total = 0
    for name, shape in net.connections.items():
        starts[name] = total
        total += math.prod(shape)
    layers: list[Layer] = []
    reads: dict[int, Reads | None] = {}
    begun = False
    for step in net.steps:
        xs = [reads[x.id] for x in step.operands]
        found: Reads | None
        if isinstance(step, steps.Source):
            found = None
            if step.depends or step.lifts:
                if begun:
                    raise refuse("paths begin at more than one input, or at a parameter")
                begun = True
                found = source(step.out.shape, step.nonzero.cpu().numpy())
        elif all(x is None for x in xs):
            found = None
        elif isinstance(step, steps.Contract):
            assert xs[0] is not None
            layers.append(_layer(step, step.weight, xs[0], layers, starts))
            found = output(step.out.shape, len(layers))
        else:
            _check(step, xs, layers)
            if isinstance(step, steps.Fixed) and xs[0] is not None:
                _limit(xs[0].size * step.out.shape[2], layers)
            found = through(step, xs)
            _limit(found.size, layers)
        reads[step.out.id] = found
    last = reads[net.outputs[0].id]
    if last is None or not layers or last.level != len(layers):
        raise refuse("the output is not behind every layer")
    mixed = [s for s in net.steps if isinstance(s, steps.Mix) and reads[s.out.id] is not None]
    for step in mixed:
        if reads[step.out.id].level < len(layers):  # type: ignore[union-attr]
            raise refuse(f"a softmax or norm {_behind(reads[step.x.id], layers)} mixes its units")
    units = [layers[0].tails, *(layer.heads for layer in layers)]
    outputs = last.units.reshape(-1, last.units.shape[-1])
    found_layers = Layered(layers, units, starts, dict(net.connections), total, outputs)
    _settle(found_layers)
    return found_layers


def _layer(
    step: steps.Contract, weight: Weight, x: Reads, layers: list[Layer], starts: dict[str, int]
) -> Layer:
    name = ", ".join(names_in(weight))
    if x.level != len(layers):
        other = layers[x.level].name
        if other == name:
            raise refuse(f"the trellis branches: parts of `{name}` read different signals")
        raise refuse(f"the trellis branches: `{other}` and `{name}` read the same signal")
    b, m, k = x.units.shape[:3]
    n = weight.shape[1]
    tails = layers[-1].heads if layers else int(x.units.max(initial=-1)) + 1
    units = x.units.reshape(b * m * k, -1)
    places = _places(weight, starts)
    ascending = weight.is_view and places.strides[1] > 0
    return Layer(name, (b, m, k, n), places, np.ascontiguousarray(units), tails, ascending)


def _places(weight: Weight, starts: dict[str, int]) -> Ints:
    """Return numbers of connections (B, N, K): if possible, a strided view without a copy."""
    if weight.is_view:
        assert weight.name is not None
        view = weight.carrier
        span = view.untyped_storage().nbytes() // view.element_size()
        flat = np.arange(span, dtype=np.int32) + starts[weight.name]
        strides = tuple(flat.itemsize * s for s in view.stride())
        return np.lib.stride_tricks.as_strided(
            flat[int(view.storage_offset()) :], view.shape, strides, writeable=False
        )
    positions = weight.carrier.cpu().numpy()
    out = np.full(positions.shape, -1, np.int32)
    ordered = sorted(weight.offsets.items(), key=lambda item: item[1])
    ends = [start for _, start in ordered[1:]] + [np.iinfo(np.int64).max]
    for (name, start), end in zip(ordered, ends, strict=True):
        if name in starts:
            mine = (positions >= start) & (positions < end)
            out[mine] = positions[mine] - start + starts[name]
    return out


def _check(step: steps.Step, xs: list[Reads | None], layers: list[Layer]) -> None:
    carrying = [x for x in xs if x is not None]
    if isinstance(step, steps.Gate | steps.Product):
        raise refuse(f"signals are multiplied {_behind(carrying[0], layers)}")
    levels = sorted({x.level for x in carrying})
    if len(levels) > 1:
        skipped = layers[levels[0]].name
        raise refuse(
            f"the trellis branches: what `{skipped}` reads also goes around it and meets the "
            f"signal {_behind(carrying[-1], layers)}"
        )


def _behind(x: Reads | None, layers: list[Layer]) -> str:
    assert x is not None
    return f"behind `{layers[x.level - 1].name}`" if x.level else "at the input"


def _limit(size: int, layers: list[Layer]) -> None:
    if size > MOST:
        where = f"behind `{layers[-1].name}`" if layers else "at the input"
        raise refuse(f"the wires {where} are too many to walk ({size:,}, at most {MOST:,})")


def _settle(found: Layered) -> None:
    """Mark the units on paths of the dense network, so that every walk reaches an output."""
    reached = [np.ones(found.units[0], bool)]
    for layer in found.layers:
        reached.append(layer.seen(reached[-1]))
    useful = np.zeros(found.units[-1] + 1, bool)
    useful[found.outputs.reshape(-1)] = True
    useful = useful[:-1]
    for layer, tails in zip(reversed(found.layers), reversed(reached[:-1]), strict=True):
        layer.settle(tails, useful)
        useful = layer.leading(useful)
