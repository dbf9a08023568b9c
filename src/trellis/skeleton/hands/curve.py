"""Smooth movement through given poses."""

from __future__ import annotations

import numpy as np

from .chance import Floats


def through(times: Floats, values: Floats, at: Floats) -> Floats:
    """Values (keys, n) at rising ``times`` (keys,) -> (len(at), n), smooth and without overshoot.

    A monotone cubic (Fritsch and Carlson): at a turning point the movement rests, between two keys
    of the same value it stays, elsewhere it passes through a key without stopping. So four keys
    around a circle give a round one.

    >>> through(np.array([0.0, 1, 2]), np.array([[0.0], [4], [0]]), np.array([0.5, 1, 1.5]))[:, 0]
    array([2.5, 4. , 2.5])
    """
    gaps = np.diff(times)[:, None]
    slopes = np.diff(values, axis=0) / gaps
    before, after = slopes[:-1], slopes[1:]
    passing = before * after > 0
    # The harmonic mean of the slopes on both sides, where they agree in sign.
    total = np.where(passing, before + after, 1.0)
    inner = np.where(passing, 2 * before * after / total, 0.0)
    tangents = np.concatenate([slopes[:1], inner, slopes[-1:]])

    left = np.clip(np.searchsorted(times, at, side="right") - 1, 0, len(times) - 2)
    gap = gaps[left]
    t = np.clip((at[:, None] - times[left, None]) / gap, 0, 1)
    square, cube = t * t, t * t * t
    rise = 3 * square - 2 * cube
    start, end = values[left], values[left + 1]
    bend = (cube - 2 * square + t) * tangents[left] + (cube - square) * tangents[left + 1]
    return np.asarray(start + rise * (end - start) + gap * bend)


def wandering(knots: Floats, frames: int) -> Floats:
    """Random knots (knots, n), spread evenly over time -> a smooth path (frames, n)."""
    times = np.linspace(0, 1, len(knots))
    return through(times, knots, np.linspace(0, 1, frames))
