"""Operations whose axes correspond: axes with the same label keep the same places."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..axis_places import AxisPlaces
from ..program import Op, Ref, replaced
from ..reading import Network, Value
from ..writing import Writer
from .relation import Relation

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
