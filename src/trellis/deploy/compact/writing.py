"""Which places along every axis stay, and the smaller network that is written from them.

Live units stay. From there the set can only grow: operations tie axes together (a sum needs both
its sides, a reshape whole rectangles, a norm all that it reads) until nothing changes. The result
is the smallest such set, so compaction removes as much as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .program import Held, Op, Ref, replaced
from .reading import Network, Value

Codes = NDArray[np.int32]
Places = NDArray[np.bool_]
GONE, ALIVE = 0, 1  # codes; from 2 up, a reason
NEEDED = "an axis cannot be empty"


class AxisPlaces:
    """One code per place along each axis: gone, live, or the reason why it stays."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.reasons: list[str] = ["", ""]
        self.codes: dict[str, list[Codes]] = {}
        self.changed: set[str] = set()
        for name, value in network.values.items():
            self.codes[name] = self._first(value)
            self.changed.add(name)

    def _first(self, value: Value) -> list[Codes]:
        codes = [np.zeros(size, np.int32) for size in value.shape]
        if value.live is not None and bool(value.live.any()):
            live = value.live.numpy()
            for axis, code in enumerate(codes):
                others = tuple(a for a in range(live.ndim) if a != axis)
                code[live.any(axis=others)] = ALIVE
        for axis, size in enumerate(value.shape):
            if size == 1:
                codes[axis][:] = ALIVE
        return codes

    def reason(self, why: str) -> int:
        if why not in self.reasons:
            self.reasons.append(why)
        return self.reasons.index(why)

    def code(self, name: str, axis: int) -> Codes:
        return self.codes[name][axis]

    def places(self, name: str, axis: int) -> Places:
        found: Places = self.codes[name][axis] > GONE
        return found

    def index(self, name: str, axis: int) -> list[int]:
        found: list[int] = np.flatnonzero(self.codes[name][axis]).tolist()
        return found

    def size(self, name: str) -> list[int]:
        return [int((code > GONE).sum()) for code in self.codes[name]]

    def whole(self, name: str) -> bool:
        return all(bool((code > GONE).all()) for code in self.codes[name])

    def add(self, name: str, axis: int, codes: Codes, why: str) -> None:
        """Let places stay.

        A place that is live elsewhere stays here for the reason ``why``. A place that stays
        elsewhere for a reason stays here for the same reason.
        """
        have = self.codes[name][axis]
        fresh = (codes > GONE) & (have == GONE)
        if not fresh.any():
            return
        have[fresh] = np.where(codes[fresh] == ALIVE, self.reason(why), codes[fresh])
        self.changed.add(name)

    def fill(self, name: str, axis: int, why: str) -> None:
        """Let the whole axis stay."""
        size = len(self.codes[name][axis])
        self.add(name, axis, np.full(size, ALIVE, np.int32), why)

    def complete(self) -> None:
        """Keep at least one place along every axis of a value that stays at all."""
        for name, codes in self.codes.items():
            if any(len(code) > 1 and code.any() for code in codes):
                for axis, code in enumerate(codes):
                    if len(code) and not code.any():
                        first = np.zeros_like(code)
                        first[0] = ALIVE
                        self.add(name, axis, first, NEEDED)

    def tie(self, ends: Sequence[tuple[str, int]], why: str) -> None:
        """Let what stays at one end stay at all ends."""
        if len(ends) < 2:
            return
        for name, axis in ends[1:]:
            self.add(*ends[0], self.codes[name][axis], why)
        for name, axis in ends[1:]:
            self.add(name, axis, self.codes[ends[0][0]][ends[0][1]], why)


def product(codes: Iterable[Codes]) -> Codes:
    """Return the codes of a rectangle, row-major: gone if one side is, else the larger code.

    >>> product([np.array([1, 0], np.int32), np.array([1, 2], np.int32)])
    array([1, 2, 0, 0], dtype=int32)
    """
    flat = np.ones(1, np.int32)
    for code in codes:
        pair = np.maximum(flat[:, None], code[None])
        flat = np.where((flat[:, None] > GONE) & (code[None] > GONE), pair, GONE).reshape(-1)
    return flat.astype(np.int32)


def projections(flat: Codes, sizes: Sequence[int]) -> list[Codes]:
    """Project the codes of a rectangle on each axis.

    >>> [p.tolist() for p in projections(np.array([1, 0, 0, 0], np.int32), (2, 2))]
    [[1, 0], [1, 0]]
    """
    box = flat.reshape(tuple(sizes))
    last = np.iinfo(np.int32).max
    box = np.where(box > GONE, box, last)
    found = []
    for axis in range(box.ndim):
        others = tuple(a for a in range(box.ndim) if a != axis)
        least = box.min(axis=others) if others else box  # the first reason
        found.append(np.where(least == last, GONE, least).astype(np.int32))
    return found


# Write the compacted network: operations over the places that stay of every value.


Place = Ref | Held


@dataclass(frozen=True, eq=False)
class Tensors:
    """A tensor of the compacted model; ``mask`` says which of its connections are kept."""

    tensor: Tensor
    learns: bool
    parameter: bool
    mask: Tensor | None = None


class Writer:
    """Collects operations and tensors. ``places`` maps each value of the old network to its
    counterpart in the new one, cut to the places that stay."""

    def __init__(self, network: Network, kept: AxisPlaces, pruned: set[str]) -> None:
        self.network, self.kept, self.pruned = network, kept, pruned
        self.ops: list[Op] = []
        self.held: dict[str, Tensors] = {}
        self.places: dict[str, Any] = {}
        self.names: set[str] = {op.name for op in network.ops} | set(network.inputs)
        self.uses: dict[str, int] = {}  # how often each parameter is read
        for op in network.ops:
            for name in op.refs():
                if name in network.parameters:
                    parameter = network.parameters[name]
                    self.uses[parameter] = self.uses.get(parameter, 0) + 1
        self.pruned_values = self._drawn_from(pruned)

    def _drawn_from(self, pruned: set[str]) -> set[str]:
        """Return values that hold only entries of these parameters."""
        own = {value for value, parameter in self.network.parameters.items() if parameter in pruned}
        other = set(self.network.parameters) - own
        for op in self.network.ops:
            parts = self.network.results.get(op.name)
            weight = op.name in self.network.values and self.network.values[op.name].weight
            if weight or isinstance(parts, list | tuple):
                refs = set(op.refs())
                if refs & own and not refs & other:
                    own.add(op.name)
                else:
                    other.add(op.name)
        return own

    # -- names -----------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        """Return an unused name for a result."""
        return self._free(name, self.names)

    def fresh_tensor(self, name: str) -> str:
        """Return an unused name for a tensor, different from all parameters of the model."""
        taken = set(self.held) | set(self.network.parameters.values())
        while any(other.startswith(f"{name}.") for other in taken):
            name = f"{name}_"
        return self._free(name, taken, add=False)

    def _free(self, name: str, taken: set[str], add: bool = True) -> str:
        found, number = name, 1
        while found in taken:
            number += 1
            found = f"{name}_{number}"
        if add:
            taken.add(found)
        return found

    # -- values ----------------------------------------------------------------------------

    def value(self, name: str) -> Value:
        return self.network.values[name]

    def read(self, argument: Any) -> Any:
        """Translate arguments of the old network to the new one."""
        return replaced(
            argument, lambda leaf: self.place(leaf.name) if isinstance(leaf, Ref) else leaf
        )

    def place(self, name: str) -> Any:
        """Return the counterpart of a value."""
        if name not in self.places:
            value = self.network.values.get(name)
            if value is None:
                return Ref(name)
            self.places[name] = self._tensor(value)
        return self.places[name]

    def _settled(self, value: Value) -> Any:
        """Return a constant, expanded to the batch, for a value that inputs no longer reach."""
        still = self.cut(value.name, value.still())
        # Infinity, as in an attention mask, must not learn.
        finite = not still.is_floating_point() or bool(still.isfinite().all())
        held = self.constant(f"{value.name}.constant", still, learns=finite)
        if not value.open:
            return held
        batch = self.call("batch", "aten.sym_size.int", Ref(self.network.inputs[0]), 0)
        sizes = [batch if axis in value.open else -1 for axis in range(still.ndim)]
        return self.call(f"{value.name}_", "aten.expand.default", held, sizes)

    def _tensor(self, value: Value) -> Any:
        """Return a parameter or constant, cut to the places that stay."""
        parameter = self.network.parameters.get(value.name)
        if parameter is None and value.driven:
            return self._settled(value)
        if parameter is None:
            return self.constant(f"constants.{value.name}_", self.cut(value.name, value.tensor))
        if parameter not in self.held:
            tensor, mask = value.tensor, self.network.kept.get(parameter)
            if mask is not None and parameter in self.pruned:
                mask = self.network.lives[parameter]
            if mask is not None:
                tensor = torch.where(mask, tensor, torch.zeros_like(tensor))
                mask = self.cut(value.name, mask)
            learns = self.network.learns.get(parameter, True)
            self.held[parameter] = Tensors(self.cut(value.name, tensor), learns, True, mask)
        return Held(parameter)

    def cut(self, name: str, tensor: Tensor) -> Tensor:
        """Cut a tensor in the shape of a value, or of one axis, to the places that stay."""
        for axis in range(tensor.ndim):
            if tensor.shape[axis] == len(self.kept.code(name, axis)):
                index = self.kept.index(name, axis)
                if len(index) < tensor.shape[axis]:
                    tensor = tensor.index_select(axis, torch.tensor(index, dtype=torch.int64))
        return tensor.contiguous().clone()

    def constant(self, name: str, tensor: Tensor, learns: bool = False) -> Held:
        """Add a tensor to the new model, as a parameter if it learns."""
        learns = learns and tensor.is_floating_point()
        return self.hold(self.fresh_tensor(name), tensor, learns, learns)

    def hold(self, name: str, tensor: Tensor, learns: bool, parameter: bool = True) -> Held:
        """Add a tensor under exactly this name."""
        self.held[name] = Tensors(tensor.detach().contiguous().clone(), learns, parameter)
        return Held(name)

    # -- operations ------------------------------------------------------------------------

    def add(self, op: Op) -> Ref:
        self.ops.append(op)
        return Ref(op.name)

    def call(self, name: str, target: str, *args: Any, **kwargs: Any) -> Ref:
        return self.add(Op(self.fresh(name), target, args, kwargs))

    def take(self, x: Any, axis: int, index: Sequence[int], size: int, name: str) -> Any:
        """Select ``index`` along an axis of ``size``, with no operation, a slice or a gather."""
        index = list(index)
        if index == list(range(size)):
            return x
        if index and index == list(range(index[0], index[-1] + 1)):
            return self.call(name, "aten.slice.Tensor", x, axis, index[0], index[-1] + 1)
        held = self.constant(f"constants.{name}_", torch.tensor(index, dtype=torch.int32))
        return self.call(name, "aten.index_select.default", x, axis, held)

    def narrowed(self, name: str, wanted: Sequence[Sequence[int] | None]) -> Any:
        """Select fewer places than stay: original indices along each axis, or None for all."""
        x = self.place(name)
        for axis, index in enumerate(wanted):
            if index is None:
                continue
            stays = self.kept.index(name, axis)
            if list(index) != stays:
                rank = {place: i for i, place in enumerate(stays)}
                x = self.take(x, axis, [rank[i] for i in index], len(stays), f"{name}_of")
        return x
