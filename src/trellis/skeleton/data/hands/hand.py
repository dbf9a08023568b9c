"""Forward kinematics: from poses and bones to 21 joints; random numbers equal on every machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..layouts import Layout

# A pose of the hand: 28 numbers, what each of them means, and how far each can go.


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
    """Finger angles in degrees.

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
        """Return the angles (20,): base flexion, abduction, middle and end of each finger."""
        rows: list[tuple[float, ...]] = [self.thumb]
        fingers = (self.index, self.middle, self.ring, self.little)
        for fan, (base, middle) in zip((1.0, 0.2, -0.5, -1.0), fingers, strict=True):
            rows.append((base, fan * self.spread, middle, 0.6 * middle))
        return np.array(rows, np.float64).reshape(-1)

    def but(self, **fingers: object) -> Grip:
        """Return the grip with some fingers changed."""
        return replace(self, **fingers)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Key:
    """A key pose of a movement: a grip, wrist and arm, and a duration.

    ``beats`` is the time it takes to get here from the key before.
    """

    grip: Grip
    beats: float = 1.0
    arm: Mapping[str, float] = field(default_factory=dict)

    def pose(self) -> Floats:
        """Return finger angles and arm, (28,)."""
        return np.concatenate([self.grip.angles(), [self.arm.get(name, 0.0) for name in ARM]])


def key(grip: Grip, beats: float = 1.0, **arm: float) -> Key:
    """Return a key; short for `Key`: ``key(FIST, turn=60, up=20)``."""
    unknown = set(arm) - set(ARM)
    assert not unknown, f"an arm has no {unknown}"
    return Key(grip, beats, arm)


# Grips that several actions share.


RELAXED = Grip((5, 12, 10, 15), (20, 28), (24, 32), (28, 36), (30, 38), spread=4)
FLAT = Grip((-5, 5, 0, 5), (2, 4), (0, 4), (2, 4), (4, 6), spread=3)
OPEN = Grip((-15, 15, -5, 0), (-5, 4), (-5, 4), (-4, 5), (-2, 6), spread=15)
FIST = Grip((12, 10, 50, 60), (80, 100), (82, 102), (84, 100), (84, 98))
WRAP = Grip((8, 45, 35, 40), (45, 55), (48, 58), (52, 60), (54, 60), spread=3)  # a bottle
CLAW = Grip((-5, 35, 35, 40), (28, 45), (28, 45), (28, 45), (28, 45), spread=14)  # a lid
HOOK = Grip((0, 10, 40, 60), (40, 95), (42, 98), (44, 98), (46, 95))  # a handle
PINCH = Grip((25, 20, 25, 35), (50, 45), (35, 40), (30, 38), (26, 36), spread=4)
TRIPOD = Grip((30, 20, 30, 35), (48, 48), (52, 52), (62, 70), (66, 74))  # a pen, a spoon
LATERAL = Grip((2, 5, 38, 45), (62, 70), (70, 85), (74, 88), (76, 88))  # a key
POINT = Grip((18, 2, 48, 52), (5, 8), (76, 95), (80, 98), (80, 96))
SPHERE = Grip((-5, 42, 35, 30), (30, 30), (32, 32), (32, 34), (30, 36), spread=12)  # a fruit
PLATE = Grip((38, 5, 10, 5), (55, 8), (56, 8), (57, 10), (58, 12), spread=2)  # thin and wide
CRADLE = Grip((0, 10, 25, 25), (30, 40), (34, 44), (38, 48), (42, 50), spread=2)  # a phone


# The bones of a hand, and how they differ between people.


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

    ``knuckles`` (5, 3) are the positions of the knuckles relative to the wrist, ``bones`` (5, 3)
    the lengths of each finger's bones from knuckle to tip, both in millimeters. ``axes`` (5, 3, 3)
    are the directions of each finger: forward, spread and curl.
    """

    knuckles: Floats
    bones: Floats
    axes: Floats
    forearm: float

    @classmethod
    def of(cls, chance: Chance) -> Anatomy:
        """Return a random hand: its size varies by 7 %, each bone a little more."""
        size = 1 + 0.07 * float(chance.normal())
        far = np.array(_KNUCKLE_FAR) * size * (1 + 0.025 * chance.normal(5))
        aside = np.radians(np.array(_KNUCKLE_ASIDE) + 1.5 * chance.normal(5))
        out = np.array(_KNUCKLE_OUT) * size
        knuckles = np.stack([far * np.sin(aside), far * np.cos(aside), out], -1)
        bones = np.array(_BONES) * size * (1 + 0.035 * chance.normal(5, 3))
        return cls(knuckles, bones, _axes(), _FOREARM * size)


def _axes() -> Floats:
    """Return orthogonal axes (5, 3, 3): forward, side and curl of every finger."""
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


def hand(angles: Floats, anatomy: Anatomy) -> Floats:
    """Return joints (frames, 21, 3) in the hand's axes, in mm, from angles (frames, 20) in degrees.

    A bone that is spread by a and flexed by b points to cos b (cos a forward + sin a side) +
    sin b curl. Spread is the knuckle's; flexion adds up along the finger.
    """
    base, side, middle, end = np.radians(angles.T).reshape(5, 4, -1).swapaxes(0, 1)
    flexed = np.stack([base, middle, end], 1).cumsum(1)  # (fingers, bones, frames)
    level, across = np.cos(flexed), np.sin(flexed)
    along, beside = level * np.cos(side)[:, None], level * np.sin(side)[:, None]
    directions = anatomy.axes.transpose(1, 2, 0)[..., None, None]  # (3, axes, fingers, 1, 1)
    steps = along * directions[0]  # (axes, fingers, bones, frames)
    steps += beside * directions[1]
    steps += across * directions[2]
    steps *= anatomy.bones[:, :, None]
    joints = _empty(len(angles), 21)
    joints[:, 0] = 0
    joints[:, 1:6] = anatomy.knuckles
    fingers = anatomy.knuckles.T[:, :, None, None] + steps.cumsum(2)
    joints[:, 6:] = fingers.reshape(3, 15, -1).transpose(2, 1, 0)
    return joints


def placed(joints: Floats, arm: Floats, forearm: float) -> Floats:
    """Return joints (frames, 21, 3), in mm, moved from the hand's axes by an arm (frames, 8).

    The axes are a camera's that looks where the person looks: x right, y down, z forward. An arm
    of zeros has its elbow at the origin, points forward and keeps the thumb up.
    """
    flex, deviate, turn, pitch, yaw = np.radians(arm[:, :5]).T[:, :, None]
    x, y, z = joints[..., 0], joints[..., 1], joints[..., 2]
    y, z = rotated(y, z, flex)
    x, y = rotated(x, y, deviate)
    x, z = rotated(x, z, turn)  # pronation: the thumb goes to where the palm looked
    y = y + forearm
    y, x = rotated(y, x, pitch)
    y, z = rotated(y, z, yaw)
    right, up, forward = arm[:, 5:, None].swapaxes(0, 1)
    return _points(right - z, -up - x, forward + y)


def viewed(joints: Floats, yaw: Floats, pitch: Floats, roll: Floats) -> Floats:
    """Return joints (frames, 21, 3) in a rotated camera; angles (frames,) in degrees."""
    right, up, around = (np.radians(angle)[:, None] for angle in (yaw, pitch, roll))
    x, y, z = joints[..., 0], joints[..., 1], joints[..., 2]
    z, x = rotated(z, x, right)
    y, z = rotated(y, z, up)
    return _points(*rotated(x, y, around), z)


def rotated(first: Floats, second: Floats, angle: Floats) -> tuple[Floats, Floats]:
    """Rotate in the plane of two axes, the first towards the second."""
    cos, sin = np.cos(angle), np.sin(angle)
    one, other = cos * first, sin * first
    one -= sin * second
    other += cos * second
    return one, other


def _points(x: Floats, y: Floats, z: Floats) -> Floats:
    points = _empty(*x.shape)
    points[..., 0], points[..., 1], points[..., 2] = x, y, z
    return points


def _empty(frames: int, joints: int) -> Floats:
    """Return an empty array (frames, joints, 3) whose frames are contiguous in memory."""
    return np.empty((3, joints, frames)).transpose(2, 1, 0)


Floats = NDArray[np.float64]
_16, _32 = np.uint64(16), np.uint64(32)
_QUARTERS, _HALF = np.uint64(0x0000FFFF0000FFFF), np.uint64(0xFFFFFFFF)


class Chance:
    """A stream of random numbers, seeded by integers.

    numpy guarantees PCG64's raw words, but not the results of its Generator. Here, words become
    numbers by integer arithmetic and one multiplication, which give the same bits everywhere.
    Logarithms would not.

    >>> Chance(7, 1).uniform(0, 10, 3).round(3)
    array([7.701, 1.119, 1.891])
    >>> bool(np.all(Chance(7, 1).normal(5) == Chance(7, 1).normal(5)))
    True
    """

    def __init__(self, *name: int) -> None:
        self._words = np.random.PCG64(np.random.SeedSequence(name))

    def uniform(self, low: float, high: float, *shape: int) -> Floats:
        """Return uniform numbers from ``low`` to below ``high``."""
        words = self._raw(*shape) >> np.uint64(11)
        return low + (high - low) * (words.astype(np.float64) * 2.0**-53)

    def normal(self, *shape: int) -> Floats:
        """Return nearly normal numbers of mean 0 and standard deviation 1, none beyond 3.5.

        Each is the sum of the four 16-bit quarters of a word.
        """
        words = self._raw(*shape)
        pairs = words & _QUARTERS  # two at a time, each with room for the sum
        words >>= _16
        words &= _QUARTERS
        pairs += words
        total = pairs >> _32
        pairs &= _HALF
        total += pairs
        numbers = total.astype(np.float64)
        numbers -= 2 * 65535.0
        numbers *= 3**0.5 / 65536
        return numbers

    def whole(self, low: int, high: int) -> int:
        """Return a random integer from ``low`` to ``high``, both included."""
        return low + int(self.uniform(0, high - low + 1))

    def shuffled(self, count: int) -> NDArray[np.int64]:
        """0 to ``count`` − 1 in random order."""
        return np.argsort(self._raw(count), kind="stable")

    def _raw(self, *shape: int) -> NDArray[np.uint64]:
        return np.asarray(self._words.random_raw(math.prod(shape)), np.uint64).reshape(shape)
