"""The plan of a pruner: its budget after each step, its options and its state."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ..errors import TrellisError
from ..files import digest
from ..methods.budget import budget as exact_budget
from ..methods.budget import kept_share
from ..methods.method import Method, method_class, resolved
from ..methods.options import DEFAULT, Options, current_record
from ..methods.ranking import count
from .schedule import Schedule

_MOST = 3  # differences that an error message names


def differing(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return the differences between two settings in words; "" for equal settings.

    Nested settings are named with dots.

    >>> differing({"rate": 1, "course": {"curve": "cubic"}}, {"rate": 2, "course": {}})
    "rate was 1 and is 2; course was None and is {}; course.curve was 'cubic' and is None"
    >>> differing({"rate": 1}, {"rate": 1})
    ''
    """
    before, now = _flat(stored), _flat(wanted)
    differ = [
        f"{name:.80} was {before.get(name)!r:.80} and is {now.get(name)!r:.80}"
        for name in dict.fromkeys([*now, *before])
        if before.get(name) != now.get(name)
    ]
    more = f" and {len(differ) - _MOST} more" if len(differ) > _MOST else ""
    return "; ".join(differ[:_MOST]) + more


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inner = isinstance(value, Mapping) and bool(value)
        found |= _flat(value, f"{before}{name}.") if inner else {f"{before}{name}": value}
    return found


@dataclass(frozen=True)
class Plan:
    """The budget after each step.

    Args:
        schedule: The schedule.
        total: The number of connections.
        target: The last budget.
        goal: The last sparsity.
        share: The fraction kept at the end, exactly as given.
        regrow: The share of kept connections that is replaced at the first mask update.

    Example:
        >>> plan = Plan.of(1000, 0.99, None, Schedule("geometric", end=10, every=5), 0.0)
        >>> [(step, plan.budget(step)) for step in (0, 5, 10)], plan.next(0)
        ([(0, 1000), (5, 100), (10, 10)], 5)
    """

    schedule: Schedule
    total: int
    target: int
    goal: float
    share: Fraction
    regrow: float

    @classmethod
    def of(cls, total: int, sparsity: Any, keep: Any, schedule: Schedule, regrow: float) -> Plan:
        """Return the plan for a sparsity or a number of connections to keep."""
        if not isinstance(schedule, Schedule):
            raise TrellisError(
                f"expected a trellis.Schedule, got schedule={schedule!r:.60}; give one such as "
                "trellis.Schedule('geometric', end=1000, every=10)"
            )
        number = isinstance(regrow, Real) and not isinstance(regrow, bool)
        if not number or not 0 <= regrow < 1:
            raise TrellisError(
                f"expected 0 <= regrow < 1, got regrow={regrow!r}; it is a share of the kept "
                "connections"
            )
        target = exact_budget(total, sparsity, keep)
        goal = 1 - target / total if sparsity is None else float(sparsity)
        share = kept_share(total, sparsity, keep)
        # Compared as floats and exactly, because 1 - 576 / 640 is less than 0.1.
        initial = schedule.initial_sparsity
        if initial > goal and Fraction(repr(initial)) > 1 - share:
            raise TrellisError(
                f"the schedule starts at a sparsity of {initial:g}, above the target {goal:g}; "
                "give initial_sparsity at most the target"
            )
        return cls(schedule, total, target, goal, share, float(regrow))

    def sparsity(self, step: int) -> float:
        """Return the scheduled fraction removed after ``step``."""
        return self.schedule.sparsity(step, self.goal)

    def budget(self, step: int) -> int:
        """Return the scheduled number of connections after ``step``."""
        sparsity = self.sparsity(step)
        if sparsity >= self.goal:
            return self.target
        return max(exact_budget(self.total, sparsity=sparsity), self.target)

    def renews(self, step: int) -> bool:
        """Return whether masks are updated after ``step``."""
        return self.schedule.renews(step, self.goal)

    def next(self, step: int) -> int | None:
        """Return the step of the first mask update after ``step``; None after the last one."""
        return self.schedule.after(step, self.goal)

    def regrown(self, step: int) -> int:
        """Return how many connections are replaced by regrown ones after ``step``.

        Their share of the budget falls along a cosine from ``regrow`` to 0 at the end, so that all
        connections of the last network have been trained.
        """
        left = (1 + math.cos(math.pi * self.schedule.progress(step))) / 2
        return math.floor(self.regrow * left * self.budget(step)) if self.renews(step) else 0

    def fits(self, method: Method) -> None:
        """Raise if the method's options fit a single budget, and the schedule has several."""
        fixed = method.fixed_budget
        if fixed is not None and (self.schedule.curve != "one-shot" or fixed != self.target):
            raise TrellisError(
                f"scope gives counts per parameter, {fixed} connections in all, which fits one "
                f"budget only; give a one-shot schedule with keep={fixed}, or scope='layer', "
                "'erk' or 'lamp'"
            )

    def to_dict(self, options: Options) -> dict[str, Any]:
        """Return everything that the result depends on, as JSON can hold it."""
        whole = {
            "total": self.total,
            "target": self.target,
            "schedule": self.schedule.to_dict(),
            "regrow": self.regrow,
        }
        found: dict[str, Any] = json.loads(json.dumps(whole | options.record()))
        return found


_SHARED = ("saliency", "consistent", "stochastic", "seed", "cover_outputs", "ignore")


def options_of(given: Mapping[str, Any]) -> Options:
    """Return the options of `trellis.prune` for gradual pruning: consistent unless given otherwise.

    >>> options_of({"method": "magnitude", "scope": "layer"}).closes
    True
    """
    shared = {name: value for name, value in given.items() if name in _SHARED}
    own = {name: v for name, v in given.items() if name not in _SHARED and name != "method"}
    return Options(resolved(given.get("method", DEFAULT), own), **({"consistent": True} | shared))


VERSION = 1


@dataclass(frozen=True, eq=False)
class Standing:
    """The state of a pruner.

    Args:
        steps: Steps done.
        budget: The present budget.
        masks: The present masks.
        inside: Masks of a network with the last budget inside the present one; empty if the pruner
            needs none.
    """

    steps: int
    budget: int
    masks: dict[str, Tensor]
    inside: dict[str, Tensor]

    def to_dict(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state for `Pruner.state_dict`, with a digest."""
        state = {
            "version": VERSION,
            "plan": dict(plan),
            "steps": self.steps,
            "budget": self.budget,
            "masks": {name: mask.cpu().clone() for name, mask in self.masks.items()},
            "inside": {name: mask.cpu().clone() for name, mask in self.inside.items()},
        }
        return state | {"digest": _digest(state)}


def read_standing(
    state: Mapping[str, Any],
    plan: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    inside: bool,
) -> Standing:
    """Return the state in a state dict.

    Args:
        state: What `Pruner.state_dict` returned.
        plan: The plan of this pruner.
        shapes: The shapes of its masks.
        inside: Whether it needs masks of a network with the last budget.

    Raises:
        TrellisError: The state is damaged, or is that of a pruner with another plan.
    """
    if not isinstance(state, Mapping) or "version" not in state:
        raise TrellisError("expected the state of a Pruner; give what its state_dict() returned")
    if state["version"] != VERSION:
        raise TrellisError(
            f"expected a pruner's state of version {VERSION}, got version {state['version']!r}; "
            "use the release that wrote it"
        )
    _check_same(_renamed(state.get("plan")), plan)
    for name in ("steps", "budget"):
        value = state.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise TrellisError(f"the pruner's state is damaged: {name}={value!r}")
    masks = _checked_masks("masks", state.get("masks"), shapes)
    known = _checked_masks("inside", state.get("inside"), shapes if inside else {})
    most, kept = min(state["budget"], plan["total"]), count(masks)
    if state["budget"] > plan["total"] or not 0 < kept <= most:
        raise TrellisError(
            f"the pruner's state is damaged: budget={state['budget']}, and it keeps {kept} of "
            f"{plan['total']}"
        )
    if "digest" in state and state["digest"] != _digest(state):  # older releases wrote none
        raise TrellisError(
            "the pruner's state is damaged: its digest is not the one that state_dict() returned"
        )
    return Standing(state["steps"], state["budget"], masks, known)


def _digest(state: Mapping[str, Any]) -> str:
    tensors = {
        f"{kind}.{name}": mask for kind in ("masks", "inside") for name, mask in state[kind].items()
    }
    return digest(tensors, [dict(state["plan"]), state["steps"], state["budget"]])


def _checked_masks(
    what: str, given: object, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    found = dict(given) if isinstance(given, Mapping) else {}
    if set(found) != set(shapes):
        odd = sorted(set(found) ^ set(shapes))
        raise TrellisError(
            f"the pruner's state has {what} for another model: {', '.join(map(repr, odd[:3]))} "
            "is only in one of them"
        )
    for name, mask in found.items():
        fits = isinstance(mask, Tensor) and tuple(mask.shape) == shapes[name]
        if not fits or mask.dtype != torch.bool:
            raise TrellisError(
                f"expected a bool tensor of shape {shapes[name]} at {what}[{name!r}] of the "
                "pruner's state; it belongs to another model, or is damaged"
            )
    return found


def _renamed(plan: object) -> object:
    """Return a stored plan with the present names of settings."""
    schedule = plan.get("schedule") if isinstance(plan, Mapping) else None
    if not isinstance(plan, Mapping) or not isinstance(schedule, Mapping):
        return plan
    names = {"start": "initial_sparsity"}  # as development versions stored it
    return {**plan, "schedule": {names.get(name, name): v for name, v in schedule.items()}}


def _check_same(stored: object, wanted: Mapping[str, Any]) -> None:
    known = stored if isinstance(stored, Mapping) else {}
    if known.get("method") == wanted["method"]:
        known = current_record(known, method_class(wanted["method"]))
    if differs := differing(known, wanted):
        raise TrellisError(
            f"the state is of a pruner with another plan: {differs}. Give the settings that it was "
            "begun with"
        )
