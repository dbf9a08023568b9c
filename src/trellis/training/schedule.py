"""Pruning schedules: the sparsity after each step of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

from ..errors import TrellisError

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
