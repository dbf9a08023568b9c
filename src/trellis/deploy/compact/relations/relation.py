"""The base class of relations, their registry, and `Barrier` for operations without a relation.

A *place* is an index along one axis of a value, for example one channel. A place *stays* if the
compacted model keeps it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from ..axis_places import AxisPlaces
from ..program import COUNTS, Call, Op
from ..reading import Network, Value
from ..writing import Writer

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
