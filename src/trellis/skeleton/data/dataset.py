"""A set of labeled recordings, as every reader returns it, and the pose of its skeletons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from ...errors import TrellisError
from .layouts import Layout

Frames = NDArray[np.float32]  # (frames, joints, 3)
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Fold:
    """A split of the recordings: the indices to train on and to test on."""

    name: str
    train: Indices
    test: Indices


@dataclass(frozen=True)
class LeftOut:
    """A recording that was left out (or a label without a recording), and the reason."""

    name: str
    why: str


@dataclass(frozen=True)
class Skeletons:
    """Labeled recordings of skeletons.

    Args:
        source: Where the recordings come from.
        sequences: The recordings, (frames, joints, 3) each, float32, in the unit of the source.
        labels: The class of each recording, an index into ``classes``.
        classes: The names of the classes.
        names: The name of each recording.
        layout: The skeleton.
        folds: The splits of the protocol: one, or several for cross-validation.
        synthetic: Whether a program made the recordings.
        left_out: Recordings that were left out, and why.

    Raises:
        TrellisError: There are no recordings, or shapes and counts do not fit together.
    """

    source: str
    sequences: tuple[Frames, ...]
    labels: Indices
    classes: tuple[str, ...]
    names: tuple[str, ...]
    layout: Layout
    folds: tuple[Fold, ...]
    synthetic: bool = False
    left_out: tuple[LeftOut, ...] = ()

    def __post_init__(self) -> None:
        if not self.sequences:
            raise TrellisError(f"{self.source!r} holds no recordings")
        if not len(self.sequences) == len(self.labels) == len(self.names):
            raise TrellisError(
                f"{self.source!r} has {len(self.sequences)} recordings, {len(self.labels)} labels "
                f"and {len(self.names)} names"
            )
        joints = len(self.layout.joints)
        for name, frames in zip(self.names, self.sequences, strict=True):
            if frames.ndim != 3 or frames.shape[1:] != (joints, 3) or len(frames) == 0:
                raise TrellisError(
                    f"{name}: its shape is {'x'.join(map(str, frames.shape))}; a recording has at "
                    f"least one frame of {joints} joints with 3 coordinates each"
                )

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def frames(self) -> int:
        """The number of frames of all recordings."""
        return sum(len(sequence) for sequence in self.sequences)

    @cached_property
    def digest(self) -> str:
        """A hash of frames, labels, folds and roots: everything that results depend on."""
        found = sha256()
        found.update(repr((self.layout.roots, len(self.classes))).encode())
        for sequence in self.sequences:
            found.update(repr(sequence.shape).encode())
            found.update(np.ascontiguousarray(sequence, dtype="<f4").tobytes())
        found.update(np.asarray(self.labels, dtype="<i8").tobytes())
        for fold in self.folds:
            for part in (fold.train, fold.test):
                found.update(f"{len(part)};".encode())
                found.update(np.asarray(part, dtype="<i8").tobytes())
        return found.hexdigest()


# The mean pose of a skeleton, and how to draw skeletons.


Points = NDArray[np.float64]


def mean_pose(sequences: Sequence[Frames], roots: Sequence[int]) -> Points:
    """Return the mean pose of recordings that are rotated towards each other.

    The mean pose of each recording is centered on the ``roots``, rescaled and rotated (never
    mirrored) towards the mean of all, twice. Without rotation, hands that point in all directions
    would average to a ball. The mean of the roots is the origin, and the root mean square distance
    of the joints from it is 1.

    Shapes: (frames, joints, 3) each -> (joints, 3).

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
    centered: Points = pose - pose[list(roots)].mean(axis=0)
    size = np.sqrt((centered**2).sum(axis=1).mean())
    return centered / size if size else centered


def _turned(pose: Points, towards: Points) -> Points:
    """Return a pose rotated about the origin to be nearest to another (Kabsch algorithm)."""
    left, _, right = np.linalg.svd(pose.T @ towards)
    flip = np.diag([1.0, 1.0, float(np.sign(np.linalg.det(left @ right)) or 1.0)])
    turned: Points = pose @ left @ flip @ right
    return turned


# From a recording's axes to (right, up, towards the viewer). All are rotations, so that a left hand
# stays a left hand.
UP = {
    "y": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "y-down": ((1, 0, 0), (0, -1, 0), (0, 0, -1)),
    "z": ((1, 0, 0), (0, 0, 1), (0, -1, 0)),
    "z-down": ((1, 0, 0), (0, 0, -1), (0, 1, 0)),
    "x": ((0, -1, 0), (1, 0, 0), (0, 0, 1)),
    "x-down": ((0, 1, 0), (-1, 0, 0), (0, 0, 1)),
}
# The axes of known sets. Two sets give fractions of an image that is not square: SBU is converted
# to meters by its authors' formula, MediaPipe's hands assume an aspect ratio of 4:3.
_KNOWN = {
    "fpha": np.diag((1, -1, -1)),
    "hand": np.diag((1, -1, -1)),
    "mediapipe-hand": np.diag((4 / 3, -1, -4 / 3)),
    "nw-ucla": np.diag((-1, 1, -1)),
    "sbu": np.diag((-2.56, -1.92, -1.28)),
    "shrec17": np.diag((1, 1, -1)),
}


def turn_of(layout: Layout, up: str | None = None) -> NDArray[np.float64]:
    """Return the matrix (3, 3) from a recording's axes to right, up, towards the viewer.

    >>> turn_of(Layout("arm", ("shoulder",), (-1,)), up="y-down").tolist()
    [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]]
    """
    turn: Sequence[Sequence[int]] | NDArray[np.float64]
    turn = UP[up] if up is not None else _KNOWN.get(layout.name, np.asarray(UP["y"]))
    return np.asarray(turn, np.float64)


def placed(frames: NDArray[np.float32], turn: NDArray[np.float64], grid: int) -> NDArray[np.int64]:
    """Return rotated, centered coordinates as integers from -grid to grid, (frames, joints * 3).

    >>> still = np.array([[[0, 0, 0], [2, 0, 0], [0, 1, 0]]], np.float32)
    >>> placed(still, np.eye(3), 1000)
    array([[-894, -447,    0,  894, -447,    0, -894,  447,    0]])
    """
    points = frames.astype(np.float64) @ turn.T
    flat = points.reshape(-1, 3)
    points -= (flat.min(axis=0) + flat.max(axis=0)) / 2
    radius = np.linalg.norm(points, axis=-1).max() or 1.0
    return np.rint(points * (grid / radius)).astype(np.int64).reshape(len(frames), -1)


def branches(layout: Layout) -> list[int]:
    """Return a number for each joint: one per finger or limb, or per person if there are several.

    >>> branches(Layout("hand", ("wrist", "thumb", "thumb tip", "index"), (-1, 0, 1, 0)))
    [0, 1, 1, 2]
    """
    people = sum(parent < 0 for parent in layout.parents)
    tops = [_top(layout.parents, joint, forks=people < 2) for joint in range(len(layout.joints))]
    order = list(dict.fromkeys(tops))
    return [order.index(top) for top in tops]


def _top(parents: tuple[int, ...], joint: int, *, forks: bool) -> int:
    """Return the joint where a chain of bones begins or, with ``forks``, leaves a fork."""
    chain = [joint]
    while (above := parents[chain[-1]]) >= 0 and above not in chain:  # bones may form a ring
        if forks and parents.count(above) > 1:
            break
        chain.append(above)
    return chain[-1]
