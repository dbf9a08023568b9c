"""Elementwise functions: each unit of the result reads units at the same index."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.registry import aten
from ....graph.rules.elementwise import NOT_ZERO_AT_ZERO, ZERO_AT_ZERO
from ..axis_places import AxisPlaces
from ..program import Op, Ref
from ..reading import Network
from ..writing import Writer
from .aligned import Aligned, Elementwise
from .relation import Relation, relation_for

UNARY = (set(ZERO_AT_ZERO) | set(NOT_ZERO_AT_ZERO)) - set(aten("fill_diagonal"))
UNARY |= set(aten("exp exp2 sigmoid hardtanh clamp clip clamp_min clamp_max threshold pow"))
BINARY = aten(
    "add sub rsub mul div true_divide floor_divide remainder fmod maximum minimum fmax fmin atan2 "
    "hypot eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor "
    "__and__ __or__ logaddexp logaddexp2 copysign xlogy where masked_fill addcmul lerp"
)
# In eval mode these return their input.
NOTHING = set(aten("dropout feature_dropout alpha_dropout feature_alpha_dropout alias detach"))


@relation_for(sorted(UNARY | set(BINARY)))
def elementwise(op: Op, network: Network) -> Relation | None:
    if op.name not in network.values:
        return None
    space, name, _ = op.target.split(".")
    if f"{space}::{name}" in NOTHING:
        return Nothing(op, network)
    return Elementwise(op, network)


class Nothing(Elementwise):
    """An operation that returns its input unchanged; it is left out."""

    def write(self, writer: Writer) -> Any:
        return writer.place(next(iter(self.op.refs())))


@relation_for(aten("prelu _prelu_kernel"))
def prelu(op: Op, network: Network) -> Relation | None:
    """Tie the slopes to the channels, unless one slope serves all channels."""
    x, slope = list(op.refs())
    shape = network.values[x].shape
    own = [str(axis) for axis in range(len(shape))]
    slopes = network.values[slope].shape
    channel = "1" if len(shape) > 1 else "0"
    labels = [channel if size > 1 else None for size in slopes]
    return Aligned(op, network, {x: own, slope: labels, op.name: own})


@relation_for(aten("glu"))
def glu(op: Op, network: Network) -> Relation | None:
    return Halves(op, network)


class Halves(Relation):
    """Compact a · σ(b), where a and b are the halves of an axis and keep the same places."""

    def __init__(self, op: Op, network: Network) -> None:
        super().__init__(op, network)
        self.x = next(iter(op.refs()))
        self.axis = self.call["dim"] % len(self.value(self.x).shape)

    def close(self, kept: AxisPlaces) -> None:
        why = "a gated unit needs both its halves"
        half = self.value(self.op.name).shape[self.axis]
        for axis in range(len(self.value(self.x).shape)):
            if axis != self.axis:
                kept.tie([(self.x, axis), (self.op.name, axis)], why)
        own = kept.code(self.x, self.axis)
        kept.add(self.op.name, self.axis, _joined(own[:half], own[half:]), why)
        out = kept.code(self.op.name, self.axis)
        kept.add(self.x, self.axis, np.tile(out, 2), why)

    def write(self, writer: Writer) -> Any:
        args, kwargs = writer.read((self.op.args, dict(self.op.kwargs)))
        return writer.add(Op(self.op.name, self.op.target, args, kwargs))


def _joined(a: Any, b: Any) -> Any:
    """Unite two sets of places; the code for live wins over a reason."""
    return np.where((a > 0) & (b > 0), np.minimum(a, b), np.maximum(a, b))


@relation_for(aten("zeros ones full new_zeros new_ones new_full"))
def maker(op: Op, network: Network) -> Relation | None:
    """Create a tensor of zeros, ones or another number."""
    return Made(op, network)


class Made(Relation):
    """Create a constant tensor of the size that its readers need."""

    def touched(self) -> list[str]:
        return [self.op.name]

    def close(self, kept: AxisPlaces) -> None:
        for axis in self.value(self.op.name).open:
            kept.fill(self.op.name, axis, "its size is that of the batch")

    def write(self, writer: Writer) -> Any:
        sizes = writer.kept.size(self.op.name)
        given = writer.read(self.call["size"])
        value = self.value(self.op.name)
        changes: dict[str, Any] = {
            "size": [given[a] if a in value.open else n for a, n in enumerate(sizes)]
        }
        if "self" in self.call:  # only its type is read
            changes["self"] = writer.read(self.call["self"])
        return writer.add(self.call.changed(self.op.name, **changes))


class Like(Aligned):
    """Create a constant tensor of the size of another value."""


@relation_for(aten("zeros_like ones_like full_like empty_like"))
def like(op: Op, network: Network) -> Relation | None:
    x = next(iter(op.refs()))
    own = [str(axis) for axis in range(len(network.values[x].shape))]
    return Like(op, network, {x: own, op.name: own})


@relation_for(["aten::sym_size"])
def counted(op: Op, network: Network) -> Relation | None:
    return Counted(op, network)


class Counted(Relation):
    """Return the size of an axis, such as the batch; all places of this axis stay."""

    def close(self, kept: AxisPlaces) -> None:
        x = self.call["self"]
        assert isinstance(x, Ref)
        kept.fill(x.name, self.call["dim"] % len(self.value(x.name).shape), "its size is asked for")

    def write(self, writer: Writer) -> Any:
        return writer.add(self.call.changed(self.op.name, self=writer.read(self.call["self"])))
