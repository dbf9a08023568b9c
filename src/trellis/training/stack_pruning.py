"""Gradual pruning of a stack: what each network keeps, and when that is chosen anew."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import TrellisError
from ..graph.current import current
from ..graph.trellis import trace
from ..methods.budget import kept_share
from ..methods.method import Kept
from ..methods.ranking import count
from .plan import Plan, options_of
from .regrowth import Chooser, plenty
from .schedule import Schedule

_TINY = 1e-12
Stacked = Mapping[str, Tensor]  # by parameter name, (networks, *shape)


class Diverged(TrellisError):
    """Numbers are no longer finite: nothing can be chosen by them."""


class Chooses(Protocol):
    """Which connections of every network of a stack to keep.

    ``sizes`` is how many connections each prunable parameter of one network has; ``least`` the
    smallest budget that is sure to be found inside any larger network. Called with ``worth`` (not
    negative) and ``kept`` (bool), both stacks, it chooses ``budgets[i]`` connections of network i
    among those kept.
    """

    @property
    def sizes(self) -> Mapping[str, int]: ...
    @property
    def least(self) -> int: ...
    def __call__(
        self, worth: Stacked, kept: Stacked, budgets: Sequence[int]
    ) -> dict[str, Tensor]: ...


class OneByOne:
    """Networks like ``model``, each by itself: what `trellis.Pruner` does, for any architecture.

    ``options`` are those of `trellis.prune`, but consistent unless you say otherwise.

    >>> one_by_one = OneByOne(nn.Linear(3, 2), torch.zeros(1, 3))
    >>> one_by_one.sizes, one_by_one.least
    ({'weight': 6}, 2)
    >>> worth = {"weight": torch.arange(6.0).reshape(1, 2, 3)}
    >>> one_by_one(worth, {"weight": torch.ones(1, 2, 3, dtype=bool)}, [3])["weight"].int()
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
                f"signals of {type(model).__name__} gate each other: prune it by trellis.Pruner "
                "in a training loop of its own"
            )
        self.least = bound
        self.sizes = {n: int(torch.Size(s).numel()) for n, s in self.net.connections.items()}

    def __call__(self, worth: Stacked, kept: Stacked, budgets: Sequence[int]) -> dict[str, Tensor]:
        chosen = {name: kept[name].clone() for name in self.sizes}
        for i, budget in enumerate(budgets):
            for name, mask in self.one(i, worth, kept, budget).items():
                chosen[name][i] = mask.to(chosen[name].device)
        return chosen

    def one(self, i: int, worth: Stacked, kept: Stacked, budget: int) -> Kept:
        """Network ``i`` alone."""
        mine = {name: kept[name][i].cpu() for name in self.sizes}
        if count(mine) <= budget:
            return mine
        saliency = {name: worth[name][i].cpu() for name in self.sizes}
        options = replace(self.options, saliency=saliency)
        share = kept_share(self.net.total, keep=budget)
        chooser = Chooser(self.net, current(self.net), options, budget, share)
        return chooser.shrink(mine, None, budget).kept


@dataclass(frozen=True, eq=False)
class Shrinking:
    """Networks that get sparser as they train, network i to ``targets[i]`` connections.

    ``schedule`` is in epochs. ``choose`` says what to keep, by the worth of each connection: its
    magnitude times its gradient (the root of its mean square lately) to the power
    ``sensitivity``. 0 is magnitude alone; 1 is how much the loss would feel its loss.

    With a ``surplus`` the schedule starts at so many times a target, not at the whole network: what
    is far from needed goes at the first renewal, and all the others are left for what is hard to
    choose.
    """

    schedule: Schedule
    targets: tuple[int, ...]
    choose: Chooses
    sensitivity: float = 0.0
    surplus: float | None = None

    def __post_init__(self) -> None:
        for target in self.targets:
            if target < self.choose.least:
                raise TrellisError(
                    f"{target:,} connections may not be enough for a path to every output after "
                    f"gradual pruning: keep {self.choose.least:,} or more"
                )

    @cached_property
    def plans(self) -> list[Plan]:
        total = sum(self.choose.sizes.values())
        return [Plan.of(total, None, t, self._schedule(t, total), 0.0) for t in self.targets]

    def _schedule(self, target: int, total: int) -> Schedule:
        if self.surplus is None or self.schedule.curve == "one-shot":
            return self.schedule
        start = max(1 - self.surplus * target / total, self.schedule.start)
        return replace(self.schedule, start=start)

    def renewed(
        self, epoch: int, weights: Stacked, squares: Stacked, kept: Stacked
    ) -> dict[str, Tensor] | None:
        """Masks for after ``epoch`` epochs, of ``weights`` whose gradients have these mean
        ``squares``; None if they stay as they are."""
        if not any(plan.renews(epoch) for plan in self.plans):
            return None
        worth = {name: weights[name].abs() for name in self.choose.sizes}
        if self.sensitivity:
            for name, value in worth.items():  # what never had a gradient is worth something still
                value.mul_((squares[name].sqrt() + _TINY) ** self.sensitivity)
        for name, value in worth.items():
            if not value.isfinite().all():
                raise Diverged(
                    f"training diverged ({name!r} or its gradient is not finite) within {epoch} "
                    "epochs of pruning; lower the learning rate, or look for inputs that are too "
                    "large"
                )
        return self.choose(worth, kept, [plan.budget(epoch) for plan in self.plans])

    def whole(self, weights: Stacked) -> dict[str, Tensor]:
        """Masks that keep everything."""
        return {
            name: torch.ones_like(weights[name], dtype=torch.bool) for name in self.choose.sizes
        }

    def to_dict(self) -> dict[str, Any]:
        """What the result depends on, as JSON holds it."""
        return {
            "schedule": self.schedule.to_dict(),
            "targets": list(self.targets),
            "sensitivity": self.sensitivity,
            "surplus": self.surplus,
        }
