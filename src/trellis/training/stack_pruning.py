"""Gradual pruning of a stack of networks: mask updates while it trains."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import TrellisError
from ..graph.trellis import current, trace
from ..methods.budget import count, kept_share
from ..methods.method import Kept
from .regrowth import Chooser, plenty
from .schedule import Plan, Schedule, options_of

_TINY = 1e-12
Stacked = Mapping[str, Tensor]  # by parameter name, (networks, *shape)


class Diverged(TrellisError):
    """Training diverged: a loss, weight or gradient is not finite."""


class Selector(Protocol):
    """The interface of a rule that selects which connections of a stack to keep.

    `SingleSelector` implements it for any architecture by `trellis.prune`'s methods, one network
    after another. `trellis.skeleton.model.gcn_stacks.StackSelector` implements it for stacks
    of one-block GCNs, all networks at once.
    """

    @property
    def sizes(self) -> Mapping[str, int]:
        """Connections of each prunable parameter of one network."""

    @property
    def least(self) -> int:
        """The smallest budget for which a selection exists inside every larger one."""

    def __call__(self, worth: Stacked, kept: Stacked, budgets: Sequence[int]) -> dict[str, Tensor]:
        """Return masks that keep ``budgets[i]`` of the kept connections of network i.

        Args:
            worth: The saliency of each connection, not negative; (networks, …) each.
            kept: The present masks, of the same shapes.
            budgets: One budget per network.
        """


class SingleSelector:
    """Select for one network after another, as `trellis.Pruner` does; for any architecture.

    Args:
        model: A network of the stack's architecture.
        example_inputs: Inputs to trace it with.
        **options: Options of `trellis.prune`. The default of ``consistent`` is True.

    Raises:
        TrellisError: Signals of the model gate each other, so that ``least`` has no bound.

    Example:
        >>> single = SingleSelector(nn.Linear(3, 2), torch.zeros(1, 3))
        >>> single.sizes, single.least
        ({'weight': 6}, 2)
        >>> worth = {"weight": torch.arange(6.0).reshape(1, 2, 3)}
        >>> single(worth, {"weight": torch.ones(1, 2, 3, dtype=bool)}, [3])["weight"].int()
        tensor([[[0, 0, 1],
                 [0, 1, 1]]], dtype=torch.int32)
    """

    def __init__(self, model: nn.Module, example_inputs: Any, **options: Any) -> None:
        self.model = copy.deepcopy(model).cpu().eval()
        self.net = trace(self.model, example_inputs)
        self.options = options_of(options)
        bound = plenty(self.net, self.options)
        if bound is None:
            raise TrellisError(
                f"signals of {type(model).__name__} gate each other; prune it with trellis.Pruner "
                "in your own training loop"
            )
        self.least = bound
        self.sizes = {n: int(torch.Size(s).numel()) for n, s in self.net.connections.items()}

    def __call__(self, worth: Stacked, kept: Stacked, budgets: Sequence[int]) -> dict[str, Tensor]:
        """Return masks that keep ``budgets[i]`` of the kept connections of network i."""
        chosen = {name: kept[name].clone() for name in self.sizes}
        for i, budget in enumerate(budgets):
            for name, mask in self.one(i, worth, kept, budget).items():
                chosen[name][i] = mask.to(chosen[name].device)
        return chosen

    def one(self, i: int, worth: Stacked, kept: Stacked, budget: int) -> Kept:
        """Return the masks of network ``i``."""
        mine = {name: kept[name][i].cpu() for name in self.sizes}
        if count(mine) <= budget:
            return mine
        saliency = {name: worth[name][i].cpu() for name in self.sizes}
        options = replace(self.options, saliency=saliency)
        share = kept_share(self.net.total, keep=budget)
        chooser = Chooser(self.net, current(self.net), options, budget, share)
        return chooser.shrink(mine, None, budget).kept


@dataclass(frozen=True, eq=False)
class GradualPruning:
    """When masks are updated while a stack trains, and how many connections they keep.

    The saliency of a connection is |weight| * gradient ** sensitivity. Here, gradient is the root
    of the moving average of the squared gradient.

    Args:
        schedule: The schedule, in epochs.
        targets: The last budget of each network.
        select: The rule that selects connections.
        sensitivity: Exponent of the gradient; 0 is magnitude pruning.
        surplus: The schedule starts at ``surplus`` times the target. None starts at the whole
            network.

    Raises:
        TrellisError: A target is smaller than ``select.least``.
    """

    schedule: Schedule
    targets: tuple[int, ...]
    select: Selector
    sensitivity: float = 0.0
    surplus: float | None = None

    def __post_init__(self) -> None:
        for target in self.targets:
            if target < self.select.least:
                raise TrellisError(
                    f"{target:,} connections may not be enough for a path to every output after "
                    f"gradual pruning; keep {self.select.least:,} or more"
                )

    @cached_property
    def plans(self) -> list[Plan]:
        """The plan of each network."""
        total = sum(self.select.sizes.values())
        return [Plan.of(total, None, t, self._schedule(t, total), 0.0) for t in self.targets]

    def _schedule(self, target: int, total: int) -> Schedule:
        if self.surplus is None or self.schedule.curve == "one-shot":
            return self.schedule
        start = max(1 - self.surplus * target / total, self.schedule.initial_sparsity)
        return replace(self.schedule, initial_sparsity=start)

    def renewed(
        self, epoch: int, weights: Stacked, squares: Stacked, kept: Stacked
    ) -> dict[str, Tensor] | None:
        """Return the masks after ``epoch`` epochs; None if no update is due.

        Args:
            epoch: The number of epochs done.
            weights: The weights of the stack.
            squares: The moving averages of their squared gradients.
            kept: The present masks.

        Raises:
            Diverged: A weight or gradient is not finite.
        """
        if not any(plan.renews(epoch) for plan in self.plans):
            return None
        worth = {name: weights[name].abs() for name in self.select.sizes}
        if self.sensitivity:
            for name, value in worth.items():  # _TINY: rank by magnitude where the gradient is 0
                value.mul_((squares[name].sqrt() + _TINY) ** self.sensitivity)
        for name, value in worth.items():
            if not value.isfinite().all():
                raise Diverged(
                    f"training diverged ({name!r} or its gradient is not finite) within {epoch} "
                    "epochs of pruning; lower the learning rate, or look for inputs that are too "
                    "large"
                )
        return self.select(worth, kept, [plan.budget(epoch) for plan in self.plans])

    def whole(self, weights: Stacked) -> dict[str, Tensor]:
        """Return masks that keep everything."""
        return {
            name: torch.ones_like(weights[name], dtype=torch.bool) for name in self.select.sizes
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that the result depends on, as JSON can hold them."""
        return {
            "schedule": self.schedule.to_dict(),
            "targets": list(self.targets),
            "sensitivity": self.sensitivity,
            "surplus": self.surplus,
        }
