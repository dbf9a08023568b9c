"""How small a network may be and still hold an accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import TrellisError
from ..skeletons import Indices

_STEPS = 4  # rungs of the ladder for every tenfold
_SHARE = 4  # one recording in so many is held out


@dataclass(frozen=True)
class Point:
    """A network of the search: how many connections were asked for, how many it keeps of how many,
    and its accuracy on what was held out."""

    budget: int
    kept: int
    total: int
    accuracy: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "sparsity": 1 - self.kept / self.total,
            "budget": self.budget,
            "kept": self.kept,
            "validation_top1": self.accuracy,
        }


def ladder(total: int, least: int) -> list[int]:
    """Budgets to try, from all connections down to the least: four for every tenfold.

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
) -> tuple[int | None, dict[int, float]]:
    """The smallest rung whose accuracy is ``at_least`` so much, and all that were measured.

    ``measure`` trains networks of some budgets, and ``together`` is how many at once are no slower
    than one. If all are, all are measured, and the smallest that holds is taken. Otherwise the
    ladder is halved again and again, as if what holds at some size held at every larger one.

    >>> smallest([100, 50, 25, 12], lambda each: [b / 50 for b in each], 0.5, together=1)
    (25, {50: 1.0, 25: 0.5, 12: 0.24})
    """
    found: dict[int, float] = {}

    def tried(budgets: list[int]) -> list[bool]:
        fresh = [budget for budget in budgets if budget not in found]
        for i in range(0, len(fresh), together):
            part = fresh[i : i + together]
            found.update(zip(part, measure(part), strict=True))
        return [found[budget] >= at_least for budget in budgets]

    if together >= len(rungs):
        holds = [budget for budget, held in zip(rungs, tried(list(rungs)), strict=True) if held]
        return (min(holds) if holds else None), found
    low, high = -1, len(rungs)  # rungs[low] holds, rungs[high] does not
    while high - low > 1:
        middle = (low + high) // 2
        if tried([rungs[middle]])[0]:
            low = middle
        else:
            high = middle
    return (rungs[low] if low >= 0 else None), found


def held_out(labels: Indices, chosen: Indices, seed: int) -> tuple[Indices, Indices]:
    """Divide recordings to learn from and to choose by: a quarter of each class is held out, and
    of a class with two or three recordings one.

    >>> held_out(np.array([0, 0, 0, 0, 1, 1]), np.arange(6), seed=0)
    (array([0, 1, 3, 4]), array([2, 5]))
    """
    generator = np.random.default_rng(seed)
    out: list[int] = []
    for label in np.unique(labels[chosen]):
        mine = generator.permutation(chosen[labels[chosen] == label])
        count = max(len(mine) // _SHARE, 1) if len(mine) > 1 else 0
        out += mine[:count].tolist()
    if not out:
        raise TrellisError(
            "no class has two recordings to train on: none can be held out to choose by; give "
            "--sparsity instead of --at-least"
        )
    held = np.array(sorted(out), np.int64)
    return np.setdiff1d(chosen, held), held
