"""Search for the smallest network that holds a score: one budget after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

_STEPS = 4  # budgets of a search for every factor of ten


def ladder(total: int, least: int) -> list[int]:
    """Return the budgets of a search, from ``total`` down to ``least``: four per factor of ten.

    >>> ladder(1000, 90)
    [1000, 562, 316, 177, 100]
    """
    count = math.floor(math.log10(total / least) * _STEPS + 1e-9) + 1
    return [math.floor(total / 10 ** (i / _STEPS)) for i in range(count)]


def smallest(
    rungs: Sequence[int],
    measure: Callable[[list[int]], list[float]],
    at_least: float,
    together: int,
    ahead: int = 1,
) -> tuple[int | None, dict[int, float]]:
    """Return the smallest budget that reaches a score, and all scores that decided it.

    If all budgets can be measured together, they are, and the smallest that reaches the score is
    taken. Otherwise the search is a bisection, which assumes that larger networks are not worse.

    Args:
        rungs: Budgets, largest first.
        measure: Returns the scores of networks with the given budgets.
        at_least: The score to reach.
        together: The number of networks that train as fast as one.
        ahead: The number of budgets that a bisection measures at once. It then takes fewer rounds,
            and the result is the same.

    >>> smallest([100, 50, 25, 12], lambda each: [b / 50 for b in each], 0.5, together=1)
    (25, {50: 1.0, 25: 0.5, 12: 0.24})
    """
    measured: dict[int, float] = {}

    def measure_all(budgets: Sequence[int]) -> None:
        fresh = [budget for budget in budgets if budget not in measured]
        size = max(together, ahead)
        for i in range(0, len(fresh), size):
            part = fresh[i : i + size]
            measured.update(zip(part, measure(part), strict=True))

    if together >= len(rungs):
        measure_all(rungs)
        holds = [budget for budget in rungs if measured[budget] >= at_least]
        return (min(holds) if holds else None), measured
    found: dict[int, float] = {}
    low, high = -1, len(rungs)  # rungs[low] holds, rungs[high] does not
    while high - low > 1:
        middle = (low + high) // 2
        if rungs[middle] not in measured:
            measure_all([rungs[place] for place in _next(low, high, ahead)])
        found[rungs[middle]] = measured[rungs[middle]]
        if found[rungs[middle]] >= at_least:
            low = middle
        else:
            high = middle
    return (rungs[low] if low >= 0 else None), found


def _next(low: int, high: int, most: int) -> list[int]:
    """Return the places that a bisection between two places visits next, whatever it finds.

    >>> _next(-1, 8, 1), _next(-1, 8, 3)
    ([3], [3, 1, 5])
    """
    found: list[int] = []
    waiting = [(low, high)]
    while waiting and len(found) < most:
        low, high = waiting.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            found.append(middle)
            waiting += [(low, middle), (middle, high)]
    return found
