"""Data movement: each unit of the result is one unit of the operand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ....graph.export import aten
from ....graph.simplify import groups
from ..program import Op, Ref, function
from ..reading import Network
from ..writing import AxisPlaces, Codes, Writer, product, projections
from .elementwise import Nothing
from .recurrent import GATES, Result
from .relation import Aligned, Barrier, Relation, relation_for

RESHAPED = "a reshape ties it to live ones in a rectangle"


@relation_for(aten("permute transpose t numpy_T T mT swapaxes adjoint movedim moveaxis"))
def permute(op: Op, network: Network) -> Relation | None:
    """Tie permuted axes; the order is found by permuting a tensor whose sizes all differ."""
    x = next(iter(op.refs()))
    shape = network.values[x].shape
    order = _order(op, shape)
    own = [str(axis) for axis in range(len(shape))]
    return Aligned(op, network, {x: own, op.name: [str(axis) for axis in order]})


def _order(op: Op, shape: Sequence[int]) -> list[int]:
    sizes = range(2, 2 + len(shape))  # sizes that identify the axes
    probe = torch.empty(tuple(sizes), device="meta")
    moved = function(op.target)(probe, *op.args[1:], **op.kwargs)
    return [size - 2 for size in moved.shape]


@relation_for(aten("view reshape _unsafe_view flatten unflatten squeeze unsqueeze"))
def reshape(op: Op, network: Network) -> Relation | None:
    return Reshaped(op, network)


class Reshaped(Relation):
    """Compact a reshape: runs of axes of both shapes hold the same units.

    The units that stay must form a rectangle in both shapes.
    """

    def __init__(self, op: Op, network: Network) -> None:
        super().__init__(op, network)
        self.x = next(iter(op.refs()))
        old, new = self.value(self.x).shape, self.value(op.name).shape
        olds = [a for a, n in enumerate(old) if n > 1]
        news = [a for a, n in enumerate(new) if n > 1]
        runs = groups(tuple(old[a] for a in olds), tuple(new[a] for a in news)) if olds else []
        self.runs = [([olds[i] for i in a], [news[i] for i in b]) for a, b in runs]

    def close(self, kept: AxisPlaces) -> None:
        for name in (self.x, self.op.name):
            for axis in self.value(name).open:
                kept.fill(name, axis, "it is one with the batch")
        if len(self.value(self.op.name).open) > 1:
            for name in (self.x, self.op.name):
                for axis in range(len(self.value(name).shape)):
                    kept.fill(name, axis, RESHAPED)
        for olds, news in self.runs:
            # Project from one shape to the other and back until both are the same rectangle.
            while self.spread(kept, self.x, olds, self.op.name, news) | self.spread(
                kept, self.op.name, news, self.x, olds
            ):
                pass

    def spread(self, kept: AxisPlaces, source: str, a: list[int], to: str, b: list[int]) -> bool:
        flat = product(kept.code(source, axis) for axis in a)
        sizes = [self.value(to).shape[axis] for axis in b]
        before = [kept.code(to, axis).copy() for axis in b]
        for axis, codes in zip(b, projections(flat, sizes), strict=True):
            kept.add(to, axis, codes, RESHAPED)
        return any((kept.code(to, x) != old).any() for x, old in zip(b, before, strict=True))

    def write(self, writer: Writer) -> Any:
        x = writer.place(self.x)
        value = self.value(self.op.name)
        sizes: list[Any] = list(writer.kept.size(self.op.name))
        if len(value.open) == 1:
            sizes[value.open[0]] = -1
        elif value.open:
            return writer.add(self.call.changed(self.op.name, self=x))
        elif tuple(sizes) == tuple(writer.kept.size(self.x)) and not self.value(self.x).open:
            return x
        return writer.call(self.op.name + "_", "aten.reshape.default", x, sizes)


@relation_for(aten("expand"))
def expand(op: Op, network: Network) -> Relation | None:
    return Expanded(op, network)


class Expanded(Aligned):
    """Expand axes of size one to the size of the result."""

    def __init__(self, op: Op, network: Network) -> None:
        x = next(iter(op.refs()))
        old, new = network.values[x].shape, network.values[op.name].shape
        skip = len(new) - len(old)
        labels = [str(skip + a) if n == new[skip + a] else None for a, n in enumerate(old)]
        own = [str(a) for a in range(len(new))]
        super().__init__(op, network, {x: labels, op.name: own})
        self.full |= {str(a): "its size is that of the batch" for a in network.values[op.name].open}

    def write(self, writer: Writer) -> Any:
        value = self.value(self.op.name)
        sizes = [
            given if axis in value.open else size
            for axis, (given, size) in enumerate(
                zip(writer.read(self.call["size"]), writer.kept.size(self.op.name), strict=True)
            )
        ]
        x = writer.read(self.call["self"])
        return writer.add(self.call.changed(self.op.name, self=x, size=sizes))


class Taken(Relation):
    """Select places of one axis by index; ``dropped`` means that the axis is removed."""

    def __init__(
        self, op: Op, network: Network, x: str, axis: int, index: Sequence[int], dropped: bool
    ) -> None:
        super().__init__(op, network)
        self.x, self.axis, self.index, self.dropped = x, axis, list(index), dropped
        rank = len(network.values[x].shape)
        rest = [a for a in range(rank) if a != axis]
        self.pairs = [(a, a if not dropped or a < axis else a - 1) for a in rest]

    def touched(self) -> list[str]:
        return [self.x, self.op.name]

    def close(self, kept: AxisPlaces) -> None:
        why = "a slice of it is read beside live ones"
        for here, there in self.pairs:
            kept.tie([(self.x, here), (self.op.name, there)], why)
        codes = np.zeros(self.value(self.x).shape[self.axis], np.int32)
        if self.dropped:
            codes[self.index[0]] = all(n > 0 for n in kept.size(self.op.name))
        else:
            own: Codes = kept.code(self.op.name, self.axis)
            np.maximum.at(codes, np.array(self.index, np.int64), own)
        kept.add(self.x, self.axis, codes, why)

    def write(self, writer: Writer) -> Any:
        stays = writer.kept.index(self.x, self.axis)
        rank = {place: i for i, place in enumerate(stays)}
        x = writer.place(self.x)
        if self.dropped:
            if self.index[0] not in rank:  # no operation reads it
                return x
            return writer.call(
                self.op.name + "_", "aten.select.int", x, self.axis, rank[self.index[0]]
            )
        wanted = [self.index[i] for i in writer.kept.index(self.op.name, self.axis)]
        return writer.take(x, self.axis, [rank[i] for i in wanted], len(stays), self.op.name + "_")


def _axis(network: Network, x: str, dim: int) -> int:
    return dim % max(len(network.values[x].shape), 1)


@relation_for(aten("slice narrow"))
def slice_(op: Op, network: Network) -> Relation | None:
    relation = Barrier(op, network)
    x, call = next(iter(op.refs())), relation.call
    axis = _axis(network, x, call["dim"])
    given = [call.arguments.get(name) for name in ("start", "end", "step")]
    if given in ([0, sys.maxsize, 1], [None, None, 1], [0, None, 1], [None, sys.maxsize, 1]):
        return Nothing(op, network)  # x[:], often along the batch
    if axis in network.values[x].open or any(
        isinstance(call.arguments.get(k), Ref) for k in ("start", "end", "length")
    ):
        return None
    every = list(range(network.values[x].shape[axis]))
    if "length" in call:
        start = call["start"] % len(every)
        index = every[start : start + call["length"]]
    else:
        index = every[call["start"] : call["end"] : call["step"]]
    return Taken(op, network, x, axis, index, dropped=False)


@relation_for(aten("select"))
def select(op: Op, network: Network) -> Relation | None:
    relation = Barrier(op, network)
    x = next(iter(op.refs()))
    axis, index = _axis(network, x, relation.call["dim"]), relation.call["index"]
    if axis in network.values[x].open or isinstance(index, Ref):
        return None
    return Taken(op, network, x, axis, [index % network.values[x].shape[axis]], dropped=True)


@relation_for(aten("index_select"))
def index_select(op: Op, network: Network) -> Relation | None:
    relation = Barrier(op, network)
    x, index = relation.call["self"].name, network.values[relation.call["index"].name]
    axis = _axis(network, x, relation.call["dim"])
    if index.computed or index.open or axis in network.values[x].open:
        return None
    return Taken(op, network, x, axis, index.tensor.reshape(-1).tolist(), dropped=False)


@relation_for(aten("flip"))
def flip(op: Op, network: Network) -> Relation | None:
    relation = Barrier(op, network)
    x, dims = next(iter(op.refs())), relation.call["dims"]
    if len(dims) != 1:
        return None
    axis = _axis(network, x, dims[0])
    if axis in network.values[x].open:
        return None
    index = list(range(network.values[x].shape[axis]))[::-1]
    return Taken(op, network, x, axis, index, dropped=False)


@relation_for(["operator.getitem"])
def item(op: Op, network: Network) -> Relation | None:
    """Take one of several results: one part of a split, or one result kept whole."""
    source, place = op.args
    maker = next((o for o in network.ops if o.name == source.name), None)
    if maker is None or op.name not in network.values:
        return Item(op, network)
    name = maker.target.split(".")[1]
    if name in GATES:
        return Result(op, network)
    if name not in ("split", "split_with_sizes", "chunk", "unbind", "unsafe_split", "tensor_split"):
        return Item(op, network)
    call = Barrier(maker, network).call
    x = call["self"].name
    axis = _axis(network, x, call["dim"])
    if axis in network.values[x].open or not isinstance(place, int):
        return Item(op, network)
    parts = network.results[maker.name]
    sizes = [1 if name == "unbind" else part.shape[axis] for part in parts]
    start = sum(sizes[: place % len(sizes)])
    index = range(start, start + sizes[place])
    return Taken(op, network, x, axis, index, dropped=name == "unbind")


class Item(Relation):
    """Keep one of several results whole."""

    def touched(self) -> list[str]:
        return [self.op.name] if self.op.name in self.network.values else []

    def close(self, kept: AxisPlaces) -> None:
        for name in self.touched():
            for axis in range(len(self.value(name).shape)):
                kept.fill(name, axis, "one of several results stays as it is")

    def write(self, writer: Writer) -> Any:
        return writer.add(Op(self.op.name, self.op.target, writer.read(self.op.args)))


@relation_for(aten("split split_with_sizes chunk unbind unsafe_split tensor_split"))
def split(op: Op, network: Network) -> Relation | None:
    relation = Barrier(op, network)
    x = relation.call["self"].name
    axis = _axis(network, x, relation.call["dim"])
    return None if axis in network.values[x].open else Parts(op, network)


class Parts(Relation):
    """A split, each part of which is read as a slice of the operand."""

    def touched(self) -> list[str]:
        return []

    def close(self, kept: AxisPlaces) -> None:
        """Add nothing: the relations of the parts add the places that they need."""

    def write(self, writer: Writer) -> Any:
        return None


@relation_for(aten("cat concat concatenate"))
def cat(op: Op, network: Network) -> Relation | None:
    relation = Barrier(op, network)
    names = [ref.name for ref in relation.call["tensors"]]
    if any(len(network.values[n].shape) != len(network.values[op.name].shape) for n in names):
        return None
    axis = _axis(network, op.name, relation.call["dim"])
    return None if axis in network.values[op.name].open else Joined(op, network, names, axis)


class Joined(Relation):
    """Concatenate parts along an axis."""

    def __init__(self, op: Op, network: Network, names: list[str], axis: int) -> None:
        super().__init__(op, network)
        self.names, self.axis = names, axis

    def close(self, kept: AxisPlaces) -> None:
        why = "a concatenation needs the same width in all its parts"
        for axis in range(len(self.value(self.op.name).shape)):
            if axis != self.axis:
                kept.tie([(name, axis) for name in [self.op.name, *self.names]], why)
        start = 0
        out = kept.code(self.op.name, self.axis)
        for name in self.names:
            size = self.value(name).shape[self.axis]
            kept.add(name, self.axis, out[start : start + size], why)
            codes = np.zeros_like(out)
            codes[start : start + size] = kept.code(name, self.axis)
            kept.add(self.op.name, self.axis, codes, why)
            start += size

    def write(self, writer: Writer) -> Any:
        parts = [
            writer.place(name) for name in self.names if writer.kept.places(name, self.axis).any()
        ]
        return writer.add(self.call.changed(self.op.name, tensors=parts))


@relation_for(aten("stack"))
def stack(op: Op, network: Network) -> Relation | None:
    relation = Barrier(op, network)
    names = [ref.name for ref in relation.call["tensors"]]
    rank = len(network.values[op.name].shape)
    axis = relation.call["dim"] % rank
    own = [str(a) for a in range(rank)]
    labels: dict[str, list[str | None]] = {op.name: list(own)}
    for name in names:
        labels[name] = [label for a, label in enumerate(own) if a != axis]
    return Aligned(op, network, labels, {str(axis): "it is stacked with others"})


@relation_for(aten("pad constant_pad_nd"))
def pad(op: Op, network: Network) -> Relation | None:
    """Keep padded axes whole and tie the others."""
    relation = Barrier(op, network)
    x, pads = next(iter(op.refs())), relation.call["pad"]
    rank = len(network.values[x].shape)
    if any(isinstance(p, Ref) for p in pads):
        return None
    padded = {rank - 1 - i for i in range(len(pads) // 2)}
    own = [str(a) for a in range(rank)]
    labels: dict[str, list[str | None]] = {
        x: [f"in{a}" if a in padded else own[a] for a in range(rank)],
        op.name: list(own),
    }
    why = "padding reaches along it"
    full = {str(a): why for a in padded} | {f"in{a}": why for a in padded}
    return Aligned(op, network, labels, full)


@relation_for(aten("roll"))
def roll(op: Op, network: Network) -> Relation | None:
    relation = Barrier(op, network)
    x, dims, shifts = next(iter(op.refs())), relation.call["dims"], relation.call["shifts"]
    if len(dims) != 1 or isinstance(shifts[0], Ref):
        return None
    axis = _axis(network, x, dims[0])
    if axis in network.values[x].open:
        return None
    size = network.values[x].shape[axis]
    index = [(i - shifts[0]) % size for i in range(size)]
    return Taken(op, network, x, axis, index, dropped=False)
