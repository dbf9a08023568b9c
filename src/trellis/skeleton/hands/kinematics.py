"""Forward kinematics: from poses and bones to the places of 21 joints."""

from __future__ import annotations

import numpy as np

from .anatomy import Anatomy
from .chance import Floats


def hand(angles: Floats, anatomy: Anatomy) -> Floats:
    """Finger angles (frames, 20) in degrees -> joints (frames, 21, 3) in the hand's own axes, mm.

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
    """Joints (frames, 21, 3) in the hand's axes -> as an arm (frames, 8) carries them, mm.

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
    """What a camera sees (frames, 21, 3) after it has turned; angles in degrees, (frames,)."""
    right, up, around = (np.radians(angle)[:, None] for angle in (yaw, pitch, roll))
    x, y, z = joints[..., 0], joints[..., 1], joints[..., 2]
    z, x = rotated(z, x, right)
    y, z = rotated(y, z, up)
    return _points(*rotated(x, y, around), z)


def rotated(first: Floats, second: Floats, angle: Floats) -> tuple[Floats, Floats]:
    """Turn in the plane of two axes, the first towards the second."""
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
    """(frames, joints, 3), laid out with frames side by side: most is done to all frames alike."""
    return np.empty((3, joints, frames)).transpose(2, 1, 0)
