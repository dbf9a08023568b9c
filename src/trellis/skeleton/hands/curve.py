"""Smooth movement through given poses."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .chance import Floats


def through(times: Floats, values: Floats, at: Floats) -> Floats:
    """Values (keys, n) at rising ``times`` (keys,) -> (len(at), n), smooth and without overshoot.

    A monotone cubic (Fritsch and Carlson): at a turning point the movement rests, between two keys
    of the same value it stays, elsewhere it passes through a key without stopping. So four keys
    around a circle give a round one.

    >>> through(np.array([0.0, 1, 2]), np.array([[0.0], [4], [0]]), np.array([0.5, 1, 1.5]))[:, 0]
    array([2.5, 4. , 2.5])
    """
    return _Between.of(times, at)(values)


@dataclass(frozen=True, eq=False)
class _Between:
    """Which two keys each moment lies between, and how much it takes of them and of their tangents:
    columns (moments, 1). The same for all that moves at those times."""

    gaps: Floats
    left: NDArray[np.int64]
    gap: Floats
    rise: Floats
    leaving: Floats
    arriving: Floats

    @classmethod
    def of(cls, times: Floats, at: Floats) -> _Between:
        gaps = (times[1:] - times[:-1])[:, None]
        found = np.searchsorted(times, at, side="right") - 1
        left = np.minimum(np.maximum(found, 0), len(times) - 2)
        gap = gaps[left]
        t = np.minimum(np.maximum((at[:, None] - times[left, None]) / gap, 0), 1)
        square, cube = t * t, t * t * t
        rise = 3 * square - 2 * cube
        return cls(gaps, left, gap, rise, cube - 2 * square + t, cube - square)

    def __call__(self, values: Floats) -> Floats:
        """Values at the keys, (keys, n) -> at the moments, (moments, n)."""
        tangents = _tangents((values[1:] - values[:-1]) / self.gaps)
        left, right = self.left, self.left + 1
        bend = self.leaving * tangents[left]
        bend += self.arriving * tangents[right]
        bend *= self.gap
        start = values[left]
        found = values[right]
        found -= start
        found *= self.rise
        found += start
        found += bend
        return found


def _tangents(slopes: Floats) -> Floats:
    before, after = slopes[:-1], slopes[1:]
    passing = before * after > 0
    # The harmonic mean of the slopes on both sides, where they agree in sign.
    total = np.where(passing, before + after, 1.0)
    inner = np.where(passing, 2 * before * after / total, 0.0)
    return np.concatenate([slopes[:1], inner, slopes[-1:]])


def wandering(knots: Floats, frames: int) -> Floats:
    """Random knots (knots, n), spread evenly over time -> a smooth path (frames, n)."""
    return _evenly(len(knots), frames)(knots)


@functools.lru_cache(maxsize=1024)  # many recordings are of the same length
def _evenly(knots: int, frames: int) -> _Between:
    return _Between.of(np.linspace(0, 1, knots), np.linspace(0, 1, frames))
