"""What a pruner was asked for: how many connections after each step, and by which options."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from numbers import Real
from typing import Any

from ..errors import TrellisError
from ..select.budget import budget as exact_budget
from ..select.budget import kept_share
from ..select.options import Options
from ..select.prune import prune
from .schedule import Schedule

DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(prune).parameters.items()
    if name in {field.name for field in fields(Options)}
} | {"consistent": True}


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

    def fits(self, scope: str | Mapping[str, int]) -> None:
        """Counts by parameter fit one budget only."""
        if isinstance(scope, Mapping):
            asked = sum(scope.values())
            if self.schedule.curve != "one-shot" or asked != self.target:
                raise TrellisError(
                    f"scope asks for {asked} connections in all, by parameter, which fits one "
                    f"budget and no other: use a one-shot schedule with keep={asked}, or "
                    "scope='layer', 'erk' or 'lamp'"
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


def options_of(given: Mapping[str, Any]) -> Options:
    """The options of `trellis.prune`, checked; those not given as there, but consistent.

    >>> options_of({"method": "magnitude"}).closes
    True
    """
    unknown = [name for name in given if name not in DEFAULTS]
    if unknown:
        raise TrellisError(
            f"a Pruner has no option {unknown[0]!r}; beside sparsity, keep, schedule, regrow and "
            f"group it takes {', '.join(DEFAULTS)}"
        )
    return Options(**(DEFAULTS | dict(given)))
