"""A pose of the hand: 28 numbers, what each of them means, and how far each can go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from .chance import Floats

FINGERS = ("thumb", "index", "middle", "ring", "little")
ARM = ("flex", "deviate", "turn", "pitch", "yaw", "right", "up", "forward")
ANGLES = 4 * len(FINGERS)  # of the fingers: base flexion, base abduction, middle, end
SIZE = ANGLES + len(ARM)

# Degrees, from and to. A finger's base is its knuckle (MCP) and a thumb's the saddle joint (CMC);
# the next two are PIP and DIP, or the thumb's MCP and IP.
_THUMB = ((-20, 50), (-10, 60), (-10, 60), (-15, 80))
_FINGER = ((-30, 90), (-20, 20), (0, 110), (-5, 80))
# Of the wrist: flexion, ulnar deviation, pronation from thumb-up. Of the elbow and shoulder:
# forearm up, forearm inwards. The last three are the elbow's place, in millimetres.
_ARM = ((-70, 80), (-20, 35), (-85, 85), (-60, 75), (-45, 75), (-400, 400), (-400, 400),
        (-400, 400))  # fmt: skip
LIMITS: Floats = np.array([*_THUMB, *_FINGER * 4, *_ARM], np.float64)  # (SIZE, 2)


@dataclass(frozen=True)
class Grip:
    """How the fingers are held, in degrees.

    The thumb has all its four angles (flexion and abduction at the saddle, then MCP and IP). A
    finger has two, at MCP and PIP: its last joint cannot be bent alone and follows PIP, at 0.6 of
    it. ``spread`` fans the fingers out, index and little most.

    >>> Grip((0, 20, 0, 0), index=(90, 100)).angles().reshape(5, 4)[1]
    array([ 90.,   0., 100.,  60.])
    """

    thumb: tuple[float, float, float, float]
    index: tuple[float, float] = (0, 0)
    middle: tuple[float, float] = (0, 0)
    ring: tuple[float, float] = (0, 0)
    little: tuple[float, float] = (0, 0)
    spread: float = 0

    def angles(self) -> Floats:
        """(20,): base flexion, abduction, middle and end, finger after finger."""
        rows: list[tuple[float, ...]] = [self.thumb]
        fingers = (self.index, self.middle, self.ring, self.little)
        for fan, (base, middle) in zip((1.0, 0.2, -0.5, -1.0), fingers, strict=True):
            rows.append((base, fan * self.spread, middle, 0.6 * middle))
        return np.array(rows, np.float64).reshape(-1)

    def but(self, **fingers: object) -> Grip:
        """The same grip with some fingers held otherwise."""
        return replace(self, **fingers)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Key:
    """A pose that a movement passes through: a grip, where wrist and arm are, and for how long.

    ``beats`` is the time it takes to get here from the key before.
    """

    grip: Grip
    beats: float = 1.0
    arm: Mapping[str, float] = field(default_factory=dict)

    def pose(self) -> Floats:
        """(28,): finger angles, then the arm."""
        return np.concatenate([self.grip.angles(), [self.arm.get(name, 0.0) for name in ARM]])


def key(grip: Grip, beats: float = 1.0, **arm: float) -> Key:
    """A key, written short: ``key(FIST, turn=60, up=20)``."""
    unknown = set(arm) - set(ARM)
    assert not unknown, f"an arm has no {unknown}"
    return Key(grip, beats, arm)
