"""What a relation is, and the one that any operation obeys: all of everything stays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from ..axis_places import AxisPlaces
from ..program import COUNTS, Call, Op
from ..reading import Network, Value
from ..writing import Writer

Make = Callable[[Op, Network], "Relation | None"]
_MAKERS: dict[str, Make] = {}


class Relation(ABC):
    """One operation: which places of its operands and result go together, and how it is written
    once the others are gone."""

    def __init__(self, op: Op, network: Network) -> None:
        self.op, self.network = op, network
        self.call = Call(op)

    def value(self, name: str) -> Value:
        return self.network.values[name]

    def touched(self) -> list[str]:
        """The values whose places it ties."""
        names = [*self.op.refs(), self.op.name]
        return [name for name in dict.fromkeys(names) if name in self.network.values]

    @abstractmethod
    def close(self, kept: AxisPlaces) -> None:
        """Let more stay, where what stays already asks for it."""

    def settle(self, kept: AxisPlaces) -> None:  # noqa: B027  (most have nothing to add)
        """Once nothing changes: let more stay where taking it out would gain nothing."""

    @abstractmethod
    def write(self, writer: Writer) -> Any:
        """Write it over what stays; returns what stands for the result."""

    def weights(self) -> list[str]:
        """Operands that it only multiplies with: a dead connection there may become zero."""
        return []


class Barrier(Relation):
    """Whole operands, whole result."""

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
    """Say which relation operations obey, by their bare names."""

    def register(make: Make) -> Make:
        for name in names:
            _MAKERS[name] = make
        return make

    return register


def relation_of(op: Op, network: Network) -> Relation:
    """The relation of an operation; where nothing better is known, a barrier."""
    if op.target in COUNTS:
        key = op.target
    else:
        space, name, _ = op.target.split(".")
        key = f"{space}::{name}"
    make = _MAKERS.get(key)
    found = make(op, network) if make is not None else None
    return found or Barrier(op, network)
