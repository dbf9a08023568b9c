"""What an intermediate value of a traced model is: a signal, a weight, or a constant.

A constant is a plain tensor. The other two are below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Signal:
    """A tensor of units: activations that the input may reach.

    ``blocked`` marks units that are −∞ whatever the input is (attention masks); a softmax
    turns them into zeros. ``example`` is the concrete value of an integer signal, used where
    it acts as structure (an index, a mask) rather than as data.
    """

    id: int
    shape: tuple[int, ...]
    blocked: Tensor | None = None
    example: Tensor | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class Weight:
    """Entries of one or more parameters, arranged in some shape.

    While only views were taken, ``carrier`` is a meta tensor whose size, stride and offset say
    which entry of parameter ``name`` stands where. After anything else (concatenation,
    indexing) it is an int64 tensor of global positions: ``offset of the parameter + flat
    index``, and −1 where there is no connection.
    """

    name: str | None
    carrier: Tensor
    offsets: dict[str, int] = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.carrier.shape)

    @property
    def is_view(self) -> bool:
        return self.carrier.is_meta

    def positions(self) -> Tensor:
        """Global positions, in this shape. int64."""
        if not self.is_view:
            return self.carrier
        assert self.name is not None
        view = self.carrier
        span = view.untyped_storage().nbytes() // view.element_size()
        flat = torch.arange(span) + self.offsets[self.name]
        return flat.as_strided(view.shape, view.stride(), int(view.storage_offset()))

    def moved(self, move: Callable[[Tensor], Tensor]) -> Weight:
        """Apply a data movement: on the view if it stays one, else on the positions."""
        if self.is_view:
            try:
                out = move(self.carrier)
            except (NotImplementedError, RuntimeError):
                out = None
            storage = self.carrier.untyped_storage()._cdata
            if out is not None and out.is_meta and out.untyped_storage()._cdata == storage:
                return Weight(self.name, out, self.offsets)
        return Weight(None, move(self.positions()), self.offsets)

    def absent_where(self, zero: Tensor) -> Weight:
        """The same entries, with no connection where ``zero`` (broadcast) is true."""
        if not bool(zero.any()):
            shape = torch.broadcast_shapes(self.shape, zero.shape)
            return self.moved(lambda t: t.expand(shape))
        positions = torch.where(zero.cpu(), -1, self.positions())
        return Weight(None, positions, self.offsets)


Value = Signal | Weight | Tensor


def leaves(values: Any) -> Iterator[Any]:
    """Everything inside nested lists, tuples and dicts."""
    if isinstance(values, list | tuple):
        for value in values:
            yield from leaves(value)
    elif isinstance(values, dict):
        yield from leaves(list(values.values()))
    else:
        yield values


def replaced(values: Any, change: Callable[[Any], Any]) -> Any:
    """The same nesting with every leaf changed."""
    if isinstance(values, list | tuple):
        return [replaced(v, change) for v in values]
    if isinstance(values, dict):
        return {k: replaced(v, change) for k, v in values.items()}
    return change(values)
