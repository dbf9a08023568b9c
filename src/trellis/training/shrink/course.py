"""The phases of a run: dense training, gradual pruning and fine-tuning, and their learning rate."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from ...errors import TrellisError
from ..schedule import CURVES, Schedule
from .fake_quant import QUANTIZED

# Below a hundredth of the connections, a network is first pruned and fine-tuned at a hundredth;
# below a thousandth, at a thousandth as well.
WAYPOINTS = (100, 1000)
_DISTILL = 0.5  # share of the teacher in the loss, after the first of them
_TOGETHER = 0.35  # share of the steps that train nested networks together


def waypoints(keep: int, total: int) -> list[int]:
    """Return the budgets at which a network is fine-tuned before it is pruned to ``keep``.

    >>> waypoints(50_000, 1_000_000), waypoints(5_000, 1_000_000), waypoints(500, 1_000_000)
    ([], [10000], [10000, 1000])
    """
    return [total // share for share in WAYPOINTS if total // share > keep]


@dataclass(frozen=True)
class Phase:
    """A part of a run.

    Args:
        name: Its name in logs and in the history.
        kind: "dense", "prune", "tune", or "nest" for several networks at once.
        steps: The number of optimizer steps.
        keep: The budget at its end; None for all connections.
        begin: The budget at its begin; None for all connections.
        distill: Share of the loss that compares outputs with the teacher's.
        warms: Whether the learning rate rises at its begin.
        mark: Whether to note the network at its end.
        quantize: Arithmetic that its forward passes round as; None for none.
    """

    name: str
    kind: str
    steps: int
    keep: int | None = None
    begin: int | None = None
    distill: float = 0.0
    warms: bool = False
    mark: bool = False
    quantize: str | None = None


@dataclass(frozen=True)
class Course:
    """The settings of a run that do not depend on the model.

    Args:
        split: The shares of the steps for dense training, pruning and fine-tuning.
        curve: Curve of the pruning schedule (`trellis.Schedule`).
        updates: Mask updates in each pruning phase, at most.
        distill: Share of the loss that compares outputs with those of the dense network while it
            is pruned and fine-tuned, from 0 to 1. None distills networks below 1 % only: after the
            first waypoint, half of the loss compares with the network there.
        temperature: Of the softmax in that loss.
        waypoint: Whether networks below 1 % are fine-tuned on the way.
        quantize: Arithmetic that the last phase of fine-tuning trains for, "int8" or None.

    Raises:
        TrellisError: A setting is out of range.
    """

    split: tuple[float, float, float] = (0.3, 0.4, 0.3)
    curve: str = "cubic"
    updates: int = 50
    distill: float | None = None
    temperature: float = 2.0
    waypoint: bool = True
    quantize: str | None = None

    def __post_init__(self) -> None:
        given = self.split
        fits = isinstance(given, Sequence) and len(given) == 3 and all(map(_is_number, given))
        if not fits or min(given) < 0 or not 0 < sum(given) < math.inf or not given[1] > 0:
            raise TrellisError(
                "expected split to be three shares of the steps, for dense training, pruning and "
                f"fine-tuning, such as (0.3, 0.4, 0.3), got {given!r:.80}"
            )
        object.__setattr__(self, "split", tuple(each / sum(given) for each in given))
        if self.curve not in CURVES or self.curve == "one-shot":
            known = ", ".join(sorted(CURVES.keys() - {"one-shot"}))
            raise TrellisError(f"unknown curve {self.curve!r}; known: {known}")
        if not isinstance(self.updates, int) or isinstance(self.updates, bool) or self.updates < 1:
            raise TrellisError(f"expected updates to be at least 1, got {self.updates!r}")
        share = self.distill
        if share is not None and not (_is_number(share) and 0 <= share <= 1):
            raise TrellisError(f"expected 0 <= distill <= 1, got distill={self.distill!r}")
        if not _is_number(self.temperature) or not 1e-3 <= self.temperature <= 1e3:
            raise TrellisError(
                f"expected a temperature from 0.001 to 1,000, got {self.temperature!r}"
            )
        if self.quantize is not None and self.quantize not in QUANTIZED:
            known = ", ".join(map(repr, QUANTIZED))
            raise TrellisError(f"unknown quantize={self.quantize!r:.60}; known: {known}")

    def phases(
        self, steps: int, keep: int | None, total: int, *, trained: bool = False
    ) -> list[Phase]:
        """Return the phases of ``steps`` steps down to ``keep`` of ``total`` connections.

        A trained model is not trained further before it is pruned. Without ``keep`` there is only
        the dense phase.

        >>> for phase in Course().phases(1000, 50, 10_000):
        ...     print(phase.name, phase.steps, phase.keep)
        dense 300 None
        prune to 100 200 100
        tune at 100 150 100
        prune 200 50
        tune 150 50
        """
        first = self._first(steps, trained)
        found = [Phase("dense", "dense", first, warms=True)] if first else []
        if keep is None:
            return found
        stops = [*(waypoints(keep, total) if self.waypoint else ()), keep]
        stops = stops[-max(1, min(len(stops), (steps - first) // 2)) :]
        return self._quantized(found + self._pruned(stops, first, steps, total))

    def nested(
        self, steps: int, keep: Sequence[int], total: int, *, trained: bool = False
    ) -> list[Phase]:
        """Return the phases of ``steps`` steps that end with nested networks of several sizes.

        >>> for phase in Course().nested(1000, [2000, 200], 10_000):
        ...     print(phase.name, phase.steps, phase.keep, phase.mark)
        dense 195 None False
        prune to 2,000 130 2000 False
        tune at 2,000 97 2000 True
        prune 130 200 False
        tune 98 200 True
        tune together 350 2000 False
        """
        together = max(round(steps * _TOGETHER), 1)
        first = self._first(steps - together, trained)
        stops = {*keep, *(waypoints(keep[-1], total) if self.waypoint else ())}
        if steps - together - first < 2 * len(stops):
            raise TrellisError(
                f"{steps:,} steps are too few for {len(keep)} rates; give more, such as "
                f"steps={100 * len(stops)}"
            )
        found = [Phase("dense", "dense", first, warms=True)] if first else []
        found += self._pruned(sorted(stops, reverse=True), first, steps - together, total)
        ends = {phase.keep: number for number, phase in enumerate(found)}
        found = [
            replace(phase, mark=phase.keep in keep and ends[phase.keep] == number)
            for number, phase in enumerate(found)
        ]
        share = _DISTILL if self.distill is None else self.distill
        last = Phase("tune together", "nest", together, keep[0], keep[0], share, warms=True)
        return self._quantized([*found, last])

    def _quantized(self, phases: list[Phase]) -> list[Phase]:
        """Let the last phase round as the arithmetic that was asked for."""
        *before, last = phases
        if self.quantize is None:
            return phases
        if last.kind == "prune":
            raise TrellisError(
                f"quantize={self.quantize!r} needs steps for fine-tuning, and none are left; give "
                "more steps, or a split such as (0.3, 0.4, 0.3)"
            )
        name = f"{last.name} in {self.quantize}"
        return [*before, replace(last, name=name, quantize=self.quantize)]

    def _first(self, steps: int, trained: bool) -> int:
        return 0 if trained else round(steps * self.split[0])

    def _pruned(self, stops: Sequence[int], first: int, steps: int, total: int) -> list[Phase]:
        """Return the phases that prune and fine-tune at each stop, after ``first`` steps."""
        found = []
        share = self.split[1] / (self.split[1] + self.split[2])
        begin: int | None = None
        done = first
        for number, stop in enumerate(stops, 1):
            end = first + (steps - first) * number // len(stops)
            prune = max(round((end - done) * share), 1)
            last = number == len(stops)
            taught = self.distill
            if taught is None:
                taught = _DISTILL if number > 1 and stop < total // WAYPOINTS[0] else 0.0
            told = ("prune", "tune") if last else (f"prune to {stop:,}", f"tune at {stop:,}")
            # After dense training the rate stays as it is; after fine-tuning it is 0.
            warms = number > 1 or first == 0
            found.append(Phase(told[0], "prune", prune, stop, begin, taught, warms))
            if end - done > prune:
                found.append(Phase(told[1], "tune", end - done - prune, stop, stop, taught))
            begin, done = stop, end
        return found

    def schedule(self, phase: Phase, total: int) -> Schedule:
        """Return the schedule of a pruning phase, in its own steps."""
        initial = 0.0 if phase.begin is None else 1 - phase.begin / total
        every = max(math.ceil(phase.steps / self.updates), 1)
        return Schedule(
            self.curve, end=phase.steps, every=min(every, phase.steps), initial_sparsity=initial
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as JSON can hold them."""
        return dataclasses.asdict(self) | {"split": list(self.split)}


_WARM = 0.05  # share of a phase in which the rate rises


def rate_factor(phase: Phase, step: int) -> float:
    """Return the learning rate before step ``step`` (from 0) of a phase, as a share of the highest.

    It rises at the begin of the run, stays while the network is trained and pruned, and falls to 0
    along a cosine while it is fine-tuned.

    >>> phase = Phase("tune", "tune", 4)
    >>> [round(rate_factor(phase, step), 2) for step in range(4)]
    [1.0, 0.85, 0.5, 0.15]
    """
    falls = 1.0
    if phase.kind in ("tune", "nest"):
        falls = 0.5 * (1 + math.cos(math.pi * step / phase.steps))
    warm = max(round(_WARM * phase.steps), 1) if phase.warms else 0
    return falls * min((step + 1) / (warm + 1), 1.0)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
