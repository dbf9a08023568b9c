"""What a network expects of a recording, in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TrellisError

BASES = ("chunks", "cosines")


@dataclass(frozen=True)
class Recording:
    """Frames of joints become one input: averaged over ``chunks``, centred, divided by ``scale``.

    The origin is the mean position, over time, of the joints whose numbers are ``roots``. With
    ``body``, four joints (bottom, top, left, right), it is also turned as a whole, so that the
    average body stands upright, y, and faces the same way, from left to right along x. With
    ``bones``, pairs of joints, it is also brought to one size, in which these were ``length`` long
    on average before they were divided by ``scale``; but not where they are shorter than a
    twentieth of that. The network reads (joints, chunks · 3): x y z of every chunk or, where
    ``basis`` is ``"cosines"``, x y z of every coefficient of the orthonormal cosine transform
    (DCT-II) over the chunks.

    >>> Recording(("shoulder", "hand"), chunks=4, roots=(0,), scale=0.5).notes()["chunks"]
    4
    """

    joints: Sequence[str]
    chunks: int
    roots: Sequence[int]
    scale: float
    basis: str = "chunks"
    body: Sequence[int] | None = None
    bones: Sequence[tuple[int, int]] = ()
    length: float = 1.0

    def __post_init__(self) -> None:
        if self.basis not in BASES:
            raise TrellisError(f"basis={self.basis!r} is none of {', '.join(map(repr, BASES))}")

    def notes(self) -> dict[str, Any]:
        """As it lies in a ``.trellis`` file, where no basis means chunks, no body the
        camera's frame, and no bones the size that was recorded."""
        sized = {"bones": [list(map(int, bone)) for bone in self.bones],
                 "length": float(self.length)}  # fmt: skip
        return {
            "joints": list(self.joints),
            "chunks": int(self.chunks),
            "roots": [int(root) for root in self.roots],
            "scale": float(self.scale),
            **({} if self.basis == "chunks" else {"basis": self.basis}),
            **({} if self.body is None else {"body": [int(joint) for joint in self.body]}),
            **(sized if self.bones else {}),
        }


def waves(recording: Mapping[str, Any]) -> bool:
    """Whether such notes say that the network reads cosine coefficients."""
    return bool(recording.get("basis", "chunks") == "cosines")


def work(recording: Mapping[str, Any]) -> int:
    """Bytes of stack that the cosine transform in C works in.

    >>> work({"chunks": 32}), work({"chunks": 32, "basis": "cosines"})
    (0, 384)
    """
    return 4 * 3 * int(recording["chunks"]) if waves(recording) else 0


def divisor(recording: Mapping[str, Any]) -> float:
    """What places are divided by: the scale, and the factor √(2/M) of a cosine transform."""
    scale: float = recording["scale"]
    return scale * math.sqrt(recording["chunks"] / 2) if waves(recording) else scale


def bone_length(recording: Mapping[str, Any]) -> float:
    """How long the bones of what is divided so are on average."""
    return float(recording.get("length", 1.0)) / divisor(recording)


def cosine_table(chunks: int) -> NDArray[np.float32]:
    """What the transform in C (``cosine.h``) multiplies by: the factors of each halving, then,
    if something odd is left, the cosines once around a circle.

    >>> [round(float(factor), 3) for factor in cosine_table(2)]
    [1.414]
    >>> len(cosine_table(32)), len(cosine_table(5)), len(cosine_table(1))
    (28, 20, 0)
    """
    parts, size = [np.zeros(0)], chunks
    while size % 2 == 0 and size != 4:  # blocks of four have a function of their own
        parts.append(2 * np.cos(np.pi * (np.arange(size // 2) + 0.5) / size))
        size //= 2
    if size % 2 and size > 1:
        parts.append(np.cos(np.pi * np.arange(4 * size) / (2 * size)))
    return np.concatenate(parts).astype(np.float32)
