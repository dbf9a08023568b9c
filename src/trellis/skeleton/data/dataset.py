"""A set of labeled recordings, as every reader returns it."""

from __future__ import annotations

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
