"""A depth camera's errors: it is never exact, and at times it takes a finger for another place."""

from __future__ import annotations

import numpy as np

from .chance import Chance, Floats
from .curve import wandering

WHITE = 1.2  # mm, every coordinate of every frame
BIAS = 2.5  # mm, a joint's own error, which wanders through the recording
LOST = 0.012  # how often a finger's tracking is lost, per finger and frame, for 1 to 6 frames
LOST_BY = 14.0  # mm that a lost finger is put wrong, most at its tip

# Joints of each finger from the knuckle on, and how much of a miss each of them takes.
_FINGERS = np.array([[1 + f, 6 + 3 * f, 7 + 3 * f, 8 + 3 * f] for f in range(5)])
_SHARE = np.array([0.2, 0.5, 0.8, 1.0])


def errors(chance: Chance, frames: int) -> Floats:
    """(frames, 21, 3), in millimetres, to be added to what is there."""
    wrong = chance.normal(frames, 21, 3)
    wrong *= WHITE
    wrong += wandering(BIAS * chance.normal(2 + frames // 40, 63), frames).reshape(frames, 21, 3)
    misses = int(5 * LOST * frames + float(chance.uniform(0, 1)))
    first = chance.uniform(0, frames, misses).astype(np.int64)
    last = first + chance.uniform(1, 7, misses).astype(np.int64)
    fingers = chance.uniform(0, 5, misses).astype(np.int64)
    away = LOST_BY * _SHARE[:, None] * chance.normal(misses, 1, 3)  # (misses, joints, 3)
    for start, stop, finger, miss in zip(first, last, fingers, away, strict=True):
        wrong[start:stop, _FINGERS[finger]] += miss
    return wrong
