"""What is a person's own: how they hold themselves, how far and fast they move, where they look."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .chance import Chance, Floats
from .pose import ANGLES, ARM, SIZE

# How far a pose lies from the textbook's, one deviation: finger angles and arm angles in degrees,
# places in millimetres. Abduction hardly varies.
_FINGER = np.tile([7.0, 2.5, 8.0, 5.0], 5)
_ARM = np.array([8.0, 4.0, 10.0, 8.0, 9.0, 25.0, 25.0, 25.0])
POSTURE: Floats = np.concatenate([_FINGER, _ARM])
assert POSTURE.shape == (SIZE,) and len(_ARM) == len(ARM) and len(_FINGER) == ANGLES

VIEW = np.array([12.0, 10.0, 7.0])  # yaw, pitch and roll of the head, degrees
_LEAST = 0.1  # times the usual: nobody moves backwards in time


@dataclass(frozen=True)
class Habit:
    """An offset of every pose (28,), how large and how slow movements are, and the view (3,)."""

    posture: Floats
    reach: float
    pace: float
    view: Floats

    @classmethod
    def of(cls, chance: Chance, strength: float) -> Habit:
        """A habit drawn at random; ``strength`` 1 is as much as people differ from one another."""
        return cls(
            posture=strength * POSTURE * chance.normal(SIZE),
            reach=max(1 + 0.16 * strength * float(chance.normal()), _LEAST),
            pace=max(1 + 0.2 * strength * float(chance.normal()), _LEAST),
            view=strength * VIEW * chance.normal(3),
        )

    def __add__(self, other: Habit) -> Habit:
        """Both at once: offsets add up, factors multiply."""
        return Habit(
            self.posture + other.posture,
            self.reach * other.reach,
            self.pace * other.pace,
            self.view + other.view,
        )
