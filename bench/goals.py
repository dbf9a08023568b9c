"""What the timings are held to: a ratio within one run, or seconds, for each network.

>>> times = {"prune, traced": 1.0, "global_unstructured": 20.0}
>>> TRACED.verdict(times)
Verdict(goal='prune, traced / global_unstructured', value=0.05, limit=0.1, met=True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """A measured ratio (or seconds, where the goal has no divisor) beside its limit."""

    goal: str
    value: float
    limit: float
    met: bool


@dataclass(frozen=True)
class Goal:
    """`task` takes at most `limit` times `divisor`, or `limit` seconds where there is none."""

    task: str
    divisor: str | None
    limit: float

    def verdict(self, times: Mapping[str, float]) -> Verdict:
        """Hold `times` (seconds by task) to the goal."""
        value = times[self.task] / (times[self.divisor] if self.divisor else 1.0)
        goal = f"{self.task} / {self.divisor}" if self.divisor else f"{self.task}, seconds"
        return Verdict(goal, value, self.limit, value <= self.limit)


TRACED = Goal("prune, traced", "global_unstructured", 0.1)

AUDIT = (
    Goal("audit, dense", "forward + backward", 3.0),
    Goal("audit, 99 % zeros", "forward + backward", 3.0),
)

GCN = (
    Goal("prune, traced", "global_unstructured", 0.5),
    Goal("prune, cold", None, 2.0),
    *AUDIT,
    Goal("chains 99.9 %", None, 1.0),
    Goal("chains 99.9 %, stochastic", None, 1.0),
    Goal("chains 50 %", None, 10.0),
    Goal("chains 50 %, stochastic", None, 10.0),
)

# From 25 M weights up. Both first calls count: in a new interpreter, and later in an old one.
LARGE = (
    Goal("prune, cold", "global_unstructured, cold", 1.0),
    Goal("prune, first call", "global_unstructured", 1.0),
    TRACED,
    Goal("prune, traced", "read weights 6x", 5.0),
    *AUDIT,
)

# The MLP is timed and held to nothing: it is small enough for overheads to decide.
GOALS: dict[str, tuple[Goal, ...]] = {
    "mlp": (),
    "stack": (Goal("prune, traced", "global_unstructured", 0.05),),
    "gcn": GCN,
    "resnet50": LARGE,
    "vit": LARGE,
    "gpt2": LARGE,
}
