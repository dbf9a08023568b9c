"""What a pruner was asked for: how many connections after each step, and by which options."""

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

# What differs between settings that were stored and those that are asked for now.


_MOST = 3  # that are named


def differing(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """In words; "" where nothing does. Settings inside of settings are named with dots.

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
    """``target`` of ``total`` connections at the schedule's end; ``goal`` is that as a sparsity,
    ``share`` exactly as the fraction kept that was asked for.

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
        if not isinstance(schedule, Schedule):
            raise TrellisError(
                f"schedule={schedule!r:.60} is not a schedule: give one such as "
                "trellis.Schedule('geometric', end=1000, every=10)"
            )
        number = isinstance(regrow, Real) and not isinstance(regrow, bool)
        if not number or not 0 <= regrow < 1:
            raise TrellisError(
                f"regrow={regrow!r} is not a share of the kept connections: 0 <= regrow < 1"
            )
        target = exact_budget(total, sparsity, keep)
        goal = 1 - target / total if sparsity is None else float(sparsity)
        share = kept_share(total, sparsity, keep)
        # Neither way of writing the same number may be more: 1 - 576 / 640 is less than 0.1.
        if schedule.start > goal and Fraction(repr(schedule.start)) > 1 - share:
            raise TrellisError(
                f"the schedule starts at a sparsity of {schedule.start:g} and the target is "
                f"{goal:g}: start there or below"
            )
        return cls(schedule, total, target, goal, share, float(regrow))

    def sparsity(self, step: int) -> float:
        """The scheduled fraction removed after ``step``."""
        return self.schedule.sparsity(step, self.goal)

    def budget(self, step: int) -> int:
        """The scheduled number of connections after ``step``."""
        sparsity = self.sparsity(step)
        if sparsity >= self.goal:
            return self.target
        return max(exact_budget(self.total, sparsity=sparsity), self.target)

    def renews(self, step: int) -> bool:
        """Whether masks are renewed after ``step``."""
        return self.schedule.renews(step, self.goal)

    def next(self, step: int) -> int | None:
        """The first renewal after ``step``; None if there is none."""
        return self.schedule.after(step, self.goal)

    def regrown(self, step: int) -> int:
        """How many connections come back after ``step``, others going in their place.

        Their share of the budget falls along a cosine from ``regrow`` to nothing at the end, so
        that the last network consists of connections that were trained.
        """
        left = (1 + math.cos(math.pi * self.schedule.progress(step))) / 2
        return math.floor(self.regrow * left * self.budget(step)) if self.renews(step) else 0

    def fits(self, method: Method) -> None:
        """Refuse a method whose options fit a single budget, if the schedule has several."""
        fixed = method.fixed_budget
        if fixed is not None and (self.schedule.curve != "one-shot" or fixed != self.target):
            raise TrellisError(
                f"scope asks for {fixed} connections in all, by parameter, which fits one "
                f"budget only; use a one-shot schedule with keep={fixed}, or scope='layer', "
                "'erk' or 'lamp'"
            )

    def to_dict(self, options: Options) -> dict[str, Any]:
        """Everything that the result depends on, as JSON holds it."""
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


# Where a pruner stood, read back and checked.


VERSION = 1


@dataclass(frozen=True, eq=False)
class Standing:
    """A pruner after ``steps`` steps, its last ``budget``, what it keeps, and the network of the
    last budget that it knows ``inside`` (empty where it needs none)."""

    steps: int
    budget: int
    masks: dict[str, Tensor]
    inside: dict[str, Tensor]

    def to_dict(self, plan: Mapping[str, Any]) -> dict[str, Any]:
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
    """The standing in a state dict of a pruner with the same plan; any other is refused.
    ``inside``: whether such a pruner needs to know a network inside."""
    if not isinstance(state, Mapping) or "version" not in state:
        raise TrellisError("this is no state of a Pruner: give what its state_dict() returned")
    if state["version"] != VERSION:
        raise TrellisError(
            f"the pruner's state is of version {state['version']!r}; this release reads version "
            f"{VERSION}: use the release that wrote it"
        )
    _check_same(state.get("plan"), plan)
    for name in ("steps", "budget"):
        value = state.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise TrellisError(f"the pruner's state says {name}={value!r}: it is damaged")
    masks = _checked_masks("masks", state.get("masks"), shapes)
    known = _checked_masks("inside", state.get("inside"), shapes if inside else {})
    most, kept = min(state["budget"], plan["total"]), count(masks)
    if state["budget"] > plan["total"] or not 0 < kept <= most:
        raise TrellisError(
            f"the pruner's state says budget={state['budget']} and keeps {kept} of "
            f"{plan['total']}: it is damaged"
        )
    if "digest" in state and state["digest"] != _digest(state):  # older releases wrote none
        raise TrellisError(
            "the pruner's state is not what its state_dict() returned (digest): it is damaged"
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
                f"the pruner's state has {what}[{name!r}] that is no bool tensor of shape "
                f"{shapes[name]}: it belongs to another model, or is damaged"
            )
    return found


def _check_same(stored: object, wanted: Mapping[str, Any]) -> None:
    known = stored if isinstance(stored, Mapping) else {}
    if known.get("method") == wanted["method"]:
        known = current_record(known, method_class(wanted["method"]))
    if differs := differing(known, wanted):
        raise TrellisError(
            f"the state is of a pruner with another plan: {differs}. Go on with the settings it "
            "was begun with"
        )
