"""The pose that a skeleton takes on average: what to draw where no single recording is meant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .skeletons import Frames

Points = NDArray[np.float64]


def mean_pose(sequences: Sequence[Frames], roots: Sequence[int]) -> Points:
    """(frames, joints, 3) each -> (joints, 3): the mean of recordings turned alike.

    A recording's own mean pose is centred on the ``roots``, brought to one size and turned (never
    mirrored) towards the others, twice over: hands that point everywhere would otherwise average
    to a ball. The roots' mean is the origin, and joints lie at a distance of about 1 from it.

    >>> triangle = np.array([[[0, 0, 0], [1, 0, 0], [0, 2, 0]]], np.float32)
    >>> turned = triangle @ np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1]], np.float32)
    >>> np.linalg.norm(mean_pose([triangle, turned], [0]), axis=1).round(3)
    array([0.   , 0.775, 1.549])
    """
    poses = [_sized(np.asarray(frames, np.float64).mean(axis=0), roots) for frames in sequences]
    mean = poses[0]
    for _ in range(2):
        mean = _sized(np.mean([_turned(pose, mean) for pose in poses], axis=0), roots)
    return mean


def _sized(pose: Points, roots: Sequence[int]) -> Points:
    centred: Points = pose - pose[list(roots)].mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=1).mean())
    return centred / size if size else centred


def _turned(pose: Points, towards: Points) -> Points:
    """The rotation about the origin that brings a pose nearest to another (Kabsch)."""
    left, _, right = np.linalg.svd(pose.T @ towards)
    flip = np.diag([1.0, 1.0, float(np.sign(np.linalg.det(left @ right)) or 1.0)])
    turned: Points = pose @ left @ flip @ right
    return turned
