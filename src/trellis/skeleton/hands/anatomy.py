"""The bones of a hand, and how they differ between people."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..layout import Layout
from .chance import Chance, Floats

# FPHA's order: the wrist, five knuckles from thumb to little finger, then three joints a finger.
JOINTS = ("Wrist", "TMCP", "IMCP", "MMCP", "RMCP", "PMCP",
          "TPIP", "TDIP", "TTIP", "IPIP", "IDIP", "ITIP", "MPIP", "MDIP", "MTIP",
          "RPIP", "RDIP", "RTIP", "PPIP", "PDIP", "PTIP")  # fmt: skip
LAYOUT = Layout(
    "hand",
    JOINTS,
    parents=(-1, 0, 0, 0, 0, 0, 1, 6, 7, 2, 9, 10, 3, 12, 13, 4, 15, 16, 5, 18, 19),
)

# A grown-up's hand in millimetres and degrees, thumb to little finger. The hand's own axes: x to
# the thumb's side, y along the middle finger, z out of the palm.
_KNUCKLE_FAR = (40, 91, 89, 83, 78)  # from the wrist
_KNUCKLE_ASIDE = (42, 16, 2, -11, -24)  # from y towards x
_KNUCKLE_OUT = (14, 4, 0, 2, 7)  # the palm's arch, along z
_BONES = ((44, 33, 27), (45, 26, 21), (50, 30, 22), (46, 28, 22), (36, 21, 19))
_FINGER_ASIDE = (0, 9, 2, -5, -13)  # where a finger points when it is not spread
# The thumb points aside and out of the palm, and bends across it: its axes are turned.
_THUMB_ASIDE, _THUMB_OUT, _THUMB_ROLL = 40, 8, 40
_FOREARM = 245


@dataclass(frozen=True)
class Anatomy:
    """One person's right hand.

    ``knuckles`` (5, 3) are where the fingers begin, seen from the wrist; ``bones`` (5, 3) the
    lengths of each finger's bones from knuckle to tip; ``axes`` (5, 3, 3) say for each finger
    which way is forward, which way it is spread, and which way it curls; all in millimetres.
    """

    knuckles: Floats
    bones: Floats
    axes: Floats
    forearm: float

    @classmethod
    def of(cls, chance: Chance) -> Anatomy:
        """Someone's hand: larger or smaller as a whole by 7 %, each bone a little for itself."""
        size = 1 + 0.07 * float(chance.normal())
        far = np.array(_KNUCKLE_FAR) * size * (1 + 0.025 * chance.normal(5))
        aside = np.radians(np.array(_KNUCKLE_ASIDE) + 1.5 * chance.normal(5))
        out = np.array(_KNUCKLE_OUT) * size
        knuckles = np.stack([far * np.sin(aside), far * np.cos(aside), out], -1)
        bones = np.array(_BONES) * size * (1 + 0.035 * chance.normal(5, 3))
        return cls(knuckles, bones, _axes(), _FOREARM * size)


def _axes() -> Floats:
    """(5, 3, 3): forward, side and curl of every finger, at right angles to one another."""
    aside = np.radians(np.array(_FINGER_ASIDE, np.float64))
    zero, one = np.zeros(5), np.ones(5)
    forward = np.stack([np.sin(aside), np.cos(aside), zero], -1)
    side = np.stack([np.cos(aside), -np.sin(aside), zero], -1)
    curl = np.stack([zero, zero, one], -1)

    aside, out, roll = np.radians([_THUMB_ASIDE, _THUMB_OUT, _THUMB_ROLL])
    forward[0] = np.sin(aside) * np.cos(out), np.cos(aside) * np.cos(out), np.sin(out)
    across = np.array([-np.cos(aside), np.sin(aside), 0.0])
    palmar = np.cross(forward[0], across)
    curl[0] = np.cos(roll) * across + np.sin(roll) * palmar
    side[0] = np.cos(roll) * palmar - np.sin(roll) * across
    return np.stack([forward, side, curl], 1)
