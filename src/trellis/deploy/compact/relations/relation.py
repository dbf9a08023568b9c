"""The base class of relations, their registry, and `Barrier` for operations without a relation.

A *place* is an index along one axis of a value, for example one channel. A place *stays* if the
compacted model keeps it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..program import COUNTS, Call, Op, Ref, replaced
from ..reading import Network, Value
from ..writing import AxisPlaces, Writer

Make = Callable[[Op, Network], "Relation | None"]
RELATIONS: dict[str, Make] = {}


class Relation(ABC):
    """Describe how compaction treats one operation.

    A relation says which places of the operands and the result must stay together. It also writes
    the operation over the places that stay.
    """

    def __init__(self, op: Op, network: Network) -> None:
        self.op, self.network = op, network
        self.call = Call(op)

    def value(self, name: str) -> Value:
        return self.network.values[name]

    def touched(self) -> list[str]:
        """Return the names of the values whose places this relation ties."""
        names = [*self.op.refs(), self.op.name]
        return [name for name in dict.fromkeys(names) if name in self.network.values]

    @abstractmethod
    def close(self, kept: AxisPlaces) -> None:
        """Add the places that must stay because of the places that already stay."""

    def settle(self, kept: AxisPlaces) -> None:  # noqa: B027  (most have nothing to add)
        """Add places whose removal would gain nothing, after `close` has converged."""

    @abstractmethod
    def write(self, writer: Writer) -> Any:
        """Write the operation over the places that stay; return the counterpart of the result."""

    def weights(self) -> list[str]:
        """Return operands whose dead connections may become zero, because they only multiply."""
        return []


class Barrier(Relation):
    """Keep every place of all operands and of the result."""

    def __init__(self, op: Op, network: Network, why: str | None = None) -> None:
        super().__init__(op, network)
        name = op.target.split(".")[1]
        self.why = why or f"compaction does not reach through `{name}`"

    def close(self, kept: AxisPlaces) -> None:
        for name in self.touched():
            for axis in range(len(self.value(name).shape)):
                kept.fill(name, axis, self.why)

    def write(self, writer: Writer) -> Any:
        args, kwargs = writer.read((self.op.args, dict(self.op.kwargs)))
        return writer.add(Op(self.op.name, self.op.target, args, kwargs))


def relation_for(names: Iterable[str]) -> Callable[[Make], Make]:
    """Register a relation for operations, by name."""

    def register(make: Make) -> Make:
        for name in names:
            RELATIONS[name] = make
        return make

    return register


def relation_of(op: Op, network: Network) -> Relation:
    """Return the relation of an operation, or a `Barrier` if none is registered."""
    if op.target in COUNTS:
        key = op.target
    else:
        space, name, _ = op.target.split(".")
        key = f"{space}::{name}"
    make = RELATIONS.get(key)
    found = make(op, network) if make is not None else None
    return found or Barrier(op, network)


# Operations whose axes correspond: axes with the same label keep the same places.


Labels = Sequence[str | None]


class Aligned(Relation):
    """Tie axes by label: equal labels keep the same places; a label in ``full`` keeps all."""

    def __init__(
        self,
        op: Op,
        network: Network,
        labels: Mapping[str, Labels],
        full: Mapping[str, str] | None = None,
        why: str = "",
    ) -> None:
        super().__init__(op, network)
        self.full = dict(full or {})
        self.why = why or f"{_kind(op)} needs the same width on both sides"
        self.ends: dict[str, list[tuple[str, int]]] = {}
        for name, own in labels.items():
            for axis, label in enumerate(own):
                if label is not None:
                    self.ends.setdefault(label, []).append((name, axis))

    def close(self, kept: AxisPlaces) -> None:
        for label, ends in self.ends.items():
            if label in self.full:
                for name, axis in ends:
                    kept.fill(name, axis, self.full[label])
            kept.tie(ends, self.why)

    def write(self, writer: Writer) -> Any:
        args, kwargs = writer.read((self.op.args, dict(self.op.kwargs)))
        return writer.add(Op(self.op.name, self.op.target, args, kwargs))


class Elementwise(Aligned):
    """Compute each unit of the result from the units at the same index, after broadcasting."""

    def __init__(self, op: Op, network: Network, full: Mapping[str, str] | None = None) -> None:
        out = network.values[op.name].shape
        labels: dict[str, list[str | None]] = {}
        for name in [*op.refs(), op.name]:
            if name in network.values:
                labels[name] = broadcast_labels(network.values[name].shape, out)
        super().__init__(op, network, labels, full)

    def write(self, writer: Writer) -> Any:
        name = self.op.target.split(".")[1]
        constants = {n for n in self.op.refs() if self.inlined(n)}
        if name in ("add", "sub") and (other := self.nothing_added(writer, constants)) is not None:
            return other

        def read(leaf: Any) -> Any:
            if not isinstance(leaf, Ref):
                return leaf
            if leaf.name in constants:
                value = self.value(leaf.name)
                return folded(writer, value, f"{self.op.name}.constant", self.alone(leaf.name))
            return writer.place(leaf.name)

        args, kwargs = replaced((self.op.args, dict(self.op.kwargs)), read)
        return writer.add(Op(self.op.name, self.op.target, args, kwargs))

    def inlined(self, name: str) -> bool:
        """Return whether to replace an operand by a constant.

        This is so if the operand was computed from an input, no longer depends on any input, and
        the other operands alone give the result the size of the batch.
        """
        value = self.network.values.get(name)
        if value is None or not (value.constant and value.driven):
            return False
        return not self.value(self.op.name).constant and not self.alone(name) & set(value.open)

    def alone(self, name: str) -> set[int]:
        """Return the axes along which no other operand is as long as the result."""
        out, own = self.value(self.op.name).shape, self.value(name).shape
        skip = len(out) - len(own)
        others = [
            self.value(n)
            for n in self.op.refs()
            if n != name and n in self.network.values and not self.constant(n)
        ]
        found = set()
        for axis in range(len(own)):
            place = skip + axis
            long = any(
                (a := place - len(out) + len(v.shape)) >= 0
                and (v.shape[a] == out[place] > 1 or a in v.open)
                for v in others
            )
            if not long:
                found.add(axis)
        return found

    def constant(self, name: str) -> bool:
        value = self.value(name)
        return value.constant and value.driven

    def nothing_added(self, writer: Writer, constants: set[str]) -> Any:
        """Return one side of a sum if the other side is zero wherever it matters, else None."""
        if len(self.op.args) != 2:
            return None
        out = self.value(self.op.name)
        sides = [a.name for a in self.op.args if isinstance(a, Ref)]
        for place, name in enumerate(sides):
            if name not in constants or len(sides) != 2 or out.constant:
                continue
            other = sides[1 - place]
            if place == 0 and self.op.target.startswith("aten.sub"):
                continue
            if self.value(other).shape == out.shape and not bool(relevant(self.value(name)).any()):
                return writer.place(other)
        return None


def broadcast_labels(shape: Sequence[int], out: Sequence[int]) -> list[str | None]:
    """Label each axis of a broadcast operand by the result's axis; None where it is broadcast.

    >>> broadcast_labels((3, 1), (2, 3, 4))
    ['1', None]
    """
    skip = len(out) - len(shape)
    return [
        str(skip + axis) if size == out[skip + axis] and skip + axis >= 0 else None
        for axis, size in enumerate(shape)
    ]


def relevant(value: Value) -> Tensor:
    """Return a constant, set to zero where its value changes no output."""
    still = value.still()
    if value.matters is None:
        return torch.zeros_like(still)
    return torch.where(value.matters, still, torch.zeros_like(still))


def folded(writer: Writer, value: Value, name: str, whole: set[int]) -> Any:
    """Return a value that no input reaches as a constant tensor.

    Axes along which it does not vary are cut to size one, except the axes in ``whole``.
    """
    still = writer.cut(value.name, value.still())
    none = torch.zeros_like(value.tensor, dtype=torch.bool)
    matters = writer.cut(value.name, none if value.matters is None else value.matters)
    return writer.constant(name, uniform(still, matters, whole), learns=True)


def uniform(tensor: Tensor, matters: Tensor, whole: Collection[int] = ()) -> Tensor:
    """Cut an axis to size one if the entries that matter do not vary along it.

    >>> uniform(torch.tensor([[1.0, 1.0], [2.0, 5.0]]), torch.tensor([[True, True], [True, False]]))
    tensor([[1.],
            [2.]])
    """
    # Summing the same numbers in another order gives rounding differences.
    top = float(torch.where(matters, tensor, 0).abs().max()) if tensor.numel() else 0.0
    slack = 8 * torch.finfo(tensor.dtype).eps * top if tensor.is_floating_point() else 0.0
    for axis in range(tensor.ndim):
        if tensor.shape[axis] < 2 or axis in whole:
            continue
        # Compare with the first entry that matters along the axis. Other entries are free.
        place = matters.to(torch.uint8).argmax(axis, keepdim=True)
        first = tensor.gather(axis, place)
        if bool((((tensor - first).abs() <= slack) | ~matters).all()):
            tensor, matters = first, matters.any(axis, keepdim=True)
    return tensor


def _kind(op: Op) -> str:
    name = op.target.split(".")[1]
    words = {"add": "a sum", "sub": "a difference", "mul": "a product", "cat": "a concatenation"}
    return words.get(name, f"`{name}`")
