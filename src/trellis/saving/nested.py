"""Nested networks: several sizes in one model, with shared weights; any size between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..devices import on_cpu
from ..errors import TrellisError
from ..graph.inputs import from_specs
from ..graph.trellis import Trellis, current, trace, without
from ..masks import Mask, Masks
from ..masks.masked import detach
from ..masks.slots import named_slots
from ..methods.budget import budget as exact_budget
from ..methods.budget import count
from ..methods.method import Kept
from ..methods.nested import between, share
from ..schema import NestedHead, fitted
from .folder import NESTED

LEVELS, OTHERS = f"{NESTED}levels:", f"{NESTED}others:"  # prefixes of names in a weights file


@dataclass(frozen=True, eq=False)
class Nested:
    """Networks of several sizes with shared weights, each inside the next larger one.

    `trellis.shrink` makes one if it is given several rates. Every network is consistent. What is
    not a connection (biases, norms and their statistics) has its own values in each.

    Args:
        weights: The weights of the connections, by parameter name; 0 outside the largest network.
        masks: What each network keeps, the largest first.
        others: The values of each network for what is not a connection, by name. Names whose values
            are the same in all networks are left out.
        asked: The budgets that were asked for, the largest first.
        total: The number of connections of the unpruned model.
        inputs: Types and shapes of the model's inputs.
    """

    weights: Mapping[str, Tensor]
    masks: Sequence[Kept]
    others: Sequence[Mapping[str, Tensor]]
    asked: tuple[int, ...]
    total: int
    inputs: list[dict[str, Any]]

    @cached_property
    def budgets(self) -> tuple[int, ...]:
        """The number of connections of each network, the largest first."""
        return tuple(count(mask) for mask in self.masks)

    @property
    def sparsities(self) -> tuple[float, ...]:
        """The fractions removed that were asked for, the smallest first."""
        return tuple(1 - budget / self.total for budget in self.asked)

    def budget(self, sparsity: Any = None, keep: Any = None) -> int:
        """Return the number of connections to keep.

        Raises:
            TrellisError: The rate is outside the range that was trained.
        """
        found = exact_budget(self.total, sparsity, keep)
        if not self.asked[-1] <= found <= self.asked[0]:
            high, low = (f"{1 - each / self.total:.5g}" for each in (self.asked[0], self.asked[-1]))
            got = f"sparsity={sparsity!s}" if keep is None else f"keep={keep!s}"
            raise TrellisError(
                f"expected a sparsity from {high} to {low} (keep={self.asked[0]:,} to "
                f"{self.asked[-1]:,}), the range that these nested networks were trained for, got "
                f"{got}; shrink again with that rate"
            )
        return found

    def kept(self, net: Trellis, budget: int) -> Kept:
        """Return ``budget`` connections: a consistent network, nested between its neighbors."""
        if budget in self.asked:
            return self.masks[self.stops[self.asked.index(budget)]]
        for larger, smaller in pairwise(self.masks):
            if count(smaller) <= budget:
                return between(net, self.weights, larger, smaller, budget)
        return self.masks[-1]

    def beside(self, kept: int) -> dict[str, Tensor]:
        """Return the values for what is not a connection, of a network with ``kept`` connections.

        Between two networks, they are interpolated linearly over the logarithm of the size.
        """
        places = list(zip(self.budgets, self.others, strict=True))
        if kept >= self.budgets[0]:
            return dict(self.others[0])
        for (high, first), (low, second) in pairwise(places):
            if low <= kept:
                at = share(low, high, kept)
                return {name: torch.lerp(first[name], second[name], at) for name in first}
        return dict(self.others[-1])

    @on_cpu()
    def apply(
        self,
        model: nn.Module | Trellis,
        example_inputs: Any = None,
        *,
        sparsity: float | None = None,
        keep: int | None = None,
    ) -> Masks:
        """Give a model the weights and masks of one rate, in place.

        Nothing is trained. Any rate within the range that was trained can be given. Rates that
        were asked for give exactly the networks that were trained.

        Args:
            model: A model of the same architecture, masked or not, or its trellis.
            example_inputs: Inputs to trace the model with (default: those that it was shrunk
                with, with other values).
            sparsity: The fraction of connections to remove. Give this or ``keep``.
            keep: The number of connections to keep.

        Returns:
            The masks.

        Raises:
            TrellisError: The rate is out of range, or the model does not fit.
        """
        budget = self.budget(sparsity, keep)
        owner = model.model if isinstance(model, Trellis) else model
        slots = self._slots(owner)
        state = {**dict(owner.named_parameters()), **dict(owner.named_buffers())}
        for name in self.others[0]:
            if name not in state or state[name].shape != self.others[0][name].shape:
                raise TrellisError(f"the model has no {name!r} of the shape that was shrunk")
        with torch.no_grad():
            for name, slot in slots.items():
                detach(slot)
                slot.sources[0].copy_(self.weights[name])
        if example_inputs is None and not isinstance(model, Trellis):
            example_inputs = from_specs(self.inputs)
        net = trace(model, example_inputs)
        wires = [name for name in net.connections if name not in self.weights]
        kept = self.kept(without(net, wires, current(net).weights) if wires else net, budget)
        with torch.no_grad():
            for name, value in self.beside(count(kept)).items():
                state[name].copy_(value)
        masks = Masks(kept, budget=budget, provenance={"inputs": self.inputs})
        masks.apply(owner)
        return masks

    def _slots(self, model: nn.Module) -> dict[str, Any]:
        """Return the slots of the connections; raise if they do not fit."""
        named = dict(named_slots(model))
        for name, weight in self.weights.items():
            slot = named.get(name)
            if slot is None or slot.sources[0].shape != weight.shape:
                raise TrellisError(
                    f"the model has no parameter {name!r} of shape {tuple(weight.shape)}"
                )
            refuse_computed(name, slot)
        return {name: named[name] for name in self.weights}

    @cached_property
    def stops(self) -> list[int]:
        """The places of the networks asked for; one may keep less than its budget."""
        return [
            next(i for i, size in enumerate(self.budgets) if size <= budget)
            for budget in self.asked
        ]

    def tensors(self) -> dict[str, Tensor]:
        """Return what a file stores beside the weights and the masks of the largest network.

        For each kept connection: in how many more networks it is kept.
        """
        found = {}
        for name, mask in self.masks[0].items():
            levels = sum((each[name].to(torch.uint8) for each in self.masks[1:]), mask.byte() * 0)
            found[LEVELS + name] = levels[mask].cpu().contiguous()
        for name in self.others[0]:
            found[OTHERS + name] = torch.stack([each[name].cpu() for each in self.others])
        return found

    def head(self) -> dict[str, Any]:
        """Return what a file's description stores."""
        return {"asked": list(self.asked), "total": self.total, "budgets": list(self.budgets),
                "inputs": self.inputs}  # fmt: skip

    @classmethod
    def read(
        cls, head: Any, tensors: Mapping[str, Tensor], state: Mapping[str, Tensor], largest: Kept
    ) -> Nested:
        """Return what `head` and `tensors` describe.

        Args:
            head: The result of `head`.
            tensors: The result of `tensors`.
            state: The tensors of the largest network, by name.
            largest: Its masks.

        Raises:
            TrellisError: The parts do not fit together.
        """
        told = fitted(head, NestedHead, "$.nested")
        budgets = told["budgets"]
        masks: list[dict[str, Tensor]] = [{} for _ in budgets]
        for name, mask in largest.items():
            levels = tensors.get(LEVELS + name)
            if levels is None or levels.dtype != torch.uint8 or levels.shape != (int(mask.sum()),):
                raise TrellisError(f"the levels of {name!r} do not fit its mask")
            for level, each in enumerate(masks):
                each[name] = mask.clone()
                each[name][mask] = levels >= level
        others: list[dict[str, Tensor]] = [{} for _ in budgets]
        for key in sorted(tensors):
            name = key.removeprefix(OTHERS)
            if name == key:
                continue
            value = tensors[key]
            if name not in state or value.shape != (len(budgets), *state[name].shape):
                raise TrellisError(f"the values of {name!r} do not fit the model")
            if not (value.is_floating_point() and bool(value.isfinite().all())):
                raise TrellisError(f"the values of {name!r} are not finite numbers")
            for one, each in zip(others, value, strict=True):
                one[name] = each
        asked = tuple(told["asked"])
        weights = {name: state[name] for name in largest}
        found = cls(weights, masks, others, asked, told["total"], told["inputs"])
        order = [(list(each), sorted(set(each), reverse=True)) for each in (asked, budgets)]
        total = sum(mask.numel() for mask in largest.values())
        if (
            found.budgets != tuple(budgets)
            or any(given != sound for given, sound in order)
            or found.total != total
            or not (budgets[0] <= asked[0] <= total and budgets[-1] <= asked[-1])
        ):
            raise TrellisError("its budgets do not fit its masks")
        return found


def refuse_computed(name: str, slot: Any) -> None:
    """Raise if a parameter is computed from others, such as by weight norm."""
    other = [each for each in slot.transforms if not isinstance(each, Mask)]
    if other or len(slot.sources) != 1:
        kind = type(other[0]).__name__ if other else "a hook"
        raise TrellisError(
            f"{name!r} is computed by {kind}; nested networks share plain parameters: remove the "
            "parametrization, or shrink to one rate"
        )


def others_of(model: nn.Module, connections: Sequence[str]) -> dict[str, Tensor]:
    """Return what is not a connection of a model: the tensors that each rate has for itself.

    These are parameters and buffers of floats. Parameters under a parametrization are left out.
    """
    named = [*model.named_parameters(), *model.named_buffers()]
    return {
        name: tensor
        for name, tensor in named
        if tensor.is_floating_point()
        and name not in connections
        and "parametrizations." not in name
    }
