"""Pruning schedules: the sparsity after each step of training, and the plan of a pruner."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from ..errors import TrellisError
from ..files import digest
from ..methods.budget import budget as exact_budget
from ..methods.budget import count, kept_share
from ..methods.method import Method, method_class, resolved
from ..methods.prune import DEFAULT, Options, current_record

# (initial sparsity, target sparsity, progress from 0 to 1) -> sparsity
Curve = Callable[[float, float, float], float]


def linear(start: float, target: float, progress: float) -> float:
    """Remove the same number of connections at every mask update.

    >>> [round(linear(0.0, 0.8, p), 2) for p in (0, 0.25, 0.5, 1)]
    [0.0, 0.2, 0.4, 0.8]
    """
    return start + (target - start) * progress


def cubic(start: float, target: float, progress: float) -> float:
    """Prune fast at first and slowly towards the end (Zhu & Gupta, 2017).

    >>> [round(cubic(0.0, 0.8, p), 2) for p in (0, 0.25, 0.5, 1)]
    [0.0, 0.46, 0.7, 0.8]
    """
    return target + (start - target) * (1 - progress) ** 3


def geometric(start: float, target: float, progress: float) -> float:
    """Remove the same share of the remaining connections at every mask update.

    >>> [round(geometric(0.0, 0.9999, p), 4) for p in (0, 0.25, 0.5, 1)]
    [0.0, 0.9, 0.99, 0.9999]
    """
    left: float = (1 - start) ** (1 - progress) * (1 - target) ** progress
    return 1 - left


def one_shot(start: float, target: float, progress: float) -> float:
    """Reach the target at once."""
    return target


CURVES: dict[str, Curve] = {
    "one-shot": one_shot,
    "linear": linear,
    "cubic": cubic,
    "geometric": geometric,
}


@dataclass(frozen=True)
class Schedule:
    """When masks are updated, and how sparse they are then.

    Steps are optimizer steps, counted from 1; step 0 is before the first. Masks are updated at
    ``begin``, every ``every`` steps after it, and at ``end``, where the target is reached.

    Args:
        curve: "linear", "cubic", "geometric" or "one-shot". A one-shot schedule updates masks
            once, at ``begin``, and takes no other argument.
        begin: The first step at which masks may be updated.
        end: The step at which the target is reached; required unless the curve is "one-shot".
        every: Steps between two mask updates.
        initial_sparsity: The fraction removed at ``begin``, from 0 to below 1.

    Raises:
        TrellisError: An argument is missing or out of range.

    Example:
        >>> schedule = Schedule("geometric", end=100, every=40)
        >>> list(schedule.renewals(target=0.9999))
        [40, 80, 100]
        >>> [round(schedule.sparsity(step, target=0.9999), 4) for step in (0, 25, 50, 100, 200)]
        [0.0, 0.9, 0.99, 0.9999, 0.9999]
        >>> print(schedule)
        geometric, steps 0 to 100, every 40
    """

    curve: str
    begin: int = 0
    end: int | None = None
    every: int = 1
    initial_sparsity: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.curve, str) or self.curve not in CURVES:
            raise TrellisError(f"unknown schedule {self.curve!r}; known: {', '.join(CURVES)}")
        for name, least in (("begin", 0), ("every", 1)):
            object.__setattr__(self, name, _whole(name, getattr(self, name), least))
        if self.curve == "one-shot":
            if self.end not in (None, self.begin) or self.every != 1 or self.initial_sparsity != 0:
                raise TrellisError(
                    "a one-shot schedule prunes once, at step `begin`; leave out end, every and "
                    f"initial_sparsity; got end={self.end!r}, every={self.every!r}, "
                    f"initial_sparsity={self.initial_sparsity!r}"
                )
            object.__setattr__(self, "end", self.begin)
        elif self.end is None:
            raise TrellisError(
                f"a {self.curve} schedule needs end=, the step at which the target is reached"
            )
        else:
            end = _whole("end", self.end, self.begin + 1, f" (begin={self.begin})")
            object.__setattr__(self, "end", end)
        given = self.initial_sparsity
        if isinstance(given, bool) or not isinstance(given, Real) or not 0 <= given < 1:
            raise TrellisError(
                f"expected 0 <= initial_sparsity < 1, got initial_sparsity={given!r}"
            )
        object.__setattr__(self, "initial_sparsity", float(given))

    @property
    def last(self) -> int:
        """The step of the last mask update."""
        assert self.end is not None
        return self.end

    def progress(self, step: int) -> float:
        """Return the progress at ``step``: 0 up to ``begin``, 1 from ``end`` on.

        >>> [Schedule("linear", begin=10, end=30).progress(step) for step in (0, 15, 99)]
        [0.0, 0.25, 1.0]
        """
        if step >= self.last:
            return 1.0
        return (step - self.begin) / (self.last - self.begin) if step > self.begin else 0.0

    def sparsity(self, step: int, target: float) -> float:
        """Return the fraction removed after ``step``; exactly ``target`` from ``end`` on."""
        if step >= self.last:
            return target
        if step < self.begin:
            return 0.0
        found = CURVES[self.curve](self.initial_sparsity, target, self.progress(step))
        return min(max(found, self.initial_sparsity), target)

    def renews(self, step: int, target: float) -> bool:
        """Return whether masks are updated after ``step``; not where the sparsity is 0."""
        if not self.begin <= step <= self.last:
            return False
        due = step == self.last or (step - self.begin) % self.every == 0
        return due and self.sparsity(step, target) > 0

    def renewals(self, target: float) -> Iterator[int]:
        """Return all steps after which masks are updated, in order."""
        steps = [*range(self.begin, self.last, self.every), self.last]
        return (step for step in steps if self.renews(step, target))

    def after(self, step: int, target: float) -> int | None:
        """Return the step of the first mask update after ``step``; None after the last one.

        >>> schedule = Schedule("cubic", begin=10, end=30, every=8)
        >>> [schedule.after(step, 0.9) for step in (0, 10, 17, 18, 26, 30)]
        [18, 18, 18, 26, 30, None]
        """
        while target > 0 and step < self.last:
            past = max(step + 1 - self.begin, 0)
            step = min(self.begin + -(-past // self.every) * self.every, self.last)
            if self.renews(step, target):
                return step
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments as JSON can hold them."""
        return asdict(self)

    def __str__(self) -> str:
        if self.curve == "one-shot":
            return f"one-shot, step {self.begin:,}"
        start = f", from {100 * self.initial_sparsity:g} %" if self.initial_sparsity else ""
        return f"{self.curve}, steps {self.begin:,} to {self.last:,}, every {self.every:,}{start}"


def _whole(name: str, value: object, least: int, beside: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise TrellisError(
            f"expected {name} to be a whole number of steps, at least {least}{beside}, got "
            f"{value!r}"
        )
    return int(value)


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


_SHARED = (
    "saliency",
    "consistent",
    "stochastic",
    "seed",
    "cover_outputs",
    "cover_layers",
    "ignore",
)


def options_of(given: Mapping[str, Any], *, gradual: bool = True) -> Options:
    """Return the options of `trellis.prune` for a schedule: consistent unless given otherwise.

    What is pruned at once, not ``gradual``, has the method's defaults for that.

    >>> options_of({"method": "magnitude", "scope": "layer"}).closes
    True
    """
    shared = {name: value for name, value in given.items() if name in _SHARED}
    own = {name: v for name, v in given.items() if name not in _SHARED and name != "method"}
    method = resolved(given.get("method", DEFAULT), own).settled(gradual=gradual)
    return Options(method, **({"consistent": True} | shared))


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

    def shared(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state with sharded masks. It has no digest, since no process has it whole."""
        return {
            "version": VERSION, "plan": dict(plan), "steps": self.steps, "budget": self.budget,
            "masks": self.masks, "inside": self.inside,
        }  # fmt: skip


def read_standing(
    state: Mapping[str, Any],
    plan: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    inside: bool,
    count: Callable[[Mapping[str, Tensor]], int] = count,
) -> Standing:
    """Return the state in a state dict.

    Args:
        state: What `Pruner.state_dict` returned.
        plan: The plan of this pruner.
        shapes: The shapes of its masks.
        inside: Whether it needs masks of a network with the last budget.
        count: Counts the connections that masks keep.

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
    if known and "cover_layers" not in known:  # older releases had no such option
        known = {**known, "cover_layers": wanted["cover_layers"]}
    if known.get("method") == wanted["method"]:
        known = current_record(known, method_class(wanted["method"]))
    if differs := differing(known, wanted):
        raise TrellisError(
            f"the state is of a pruner with another plan: {differs}. Give the settings that it was "
            "begun with"
        )
