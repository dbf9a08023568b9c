"""How a recording becomes the input of a network, described by plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TrellisError
from .stream import Streaming

BASES = ("chunks", "cosines")
ORIGINS = ("recording", "frame")


@dataclass(frozen=True)
class Recording:
    """How a recording becomes an input: averaged over chunks, centred, divided by a scale.

    The input has the shape (joints, chunks · 3).

    Attributes:
        joints: Names of the joints.
        chunks: Number of equal parts of time over which frames are averaged.
        roots: Joints whose mean position is the origin.
        scale: Divisor of all coordinates.
        basis: ``"chunks"``: x y z of every chunk. ``"cosines"``: x y z of every coefficient of the
            orthonormal cosine transform (DCT-II) over the chunks.
        body: Four joints (bottom, top, left, right), or None. The recording is turned as a whole,
            so that on average y points from bottom to top and x from left to right.
        bones: Pairs of joints. The recording is rescaled so that these bones are ``length`` long
            on average, before the division by ``scale``. Bones shorter than a twentieth of that
            are not rescaled.
        length: Average length of the bones.
        stream: How gestures are found in a stream of frames, or None.
        origin: ``"recording"``: the mean position of the roots over time. ``"frame"``: their
            position in each chunk.

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
    stream: Streaming | None = None
    origin: str = ORIGINS[0]

    def __post_init__(self) -> None:
        if self.basis not in BASES:
            raise TrellisError(
                f"unknown basis={self.basis!r}; known: {', '.join(map(repr, BASES))}"
            )
        if self.origin not in ORIGINS:
            raise TrellisError(
                f"unknown origin={self.origin!r}; known: {', '.join(map(repr, ORIGINS))}"
            )

    def notes(self) -> dict[str, Any]:
        """Return what a ``.trellis`` file stores.

        Without a basis it is chunks; without a body, the camera's frame; without bones, the
        recorded size; without an origin, that of the whole recording.
        """
        sized = {"bones": [list(map(int, bone)) for bone in self.bones],
                 "length": float(self.length)}  # fmt: skip
        return {
            "joints": list(self.joints),
            "chunks": int(self.chunks),
            "roots": [int(root) for root in self.roots],
            "scale": float(self.scale),
            **({} if self.origin == "recording" else {"origin": self.origin}),
            **({} if self.basis == "chunks" else {"basis": self.basis}),
            **({} if self.body is None else {"body": [int(joint) for joint in self.body]}),
            **(sized if self.bones else {}),
            **({} if self.stream is None else {"stream": self.stream.notes()}),
        }


def waves(recording: Mapping[str, Any]) -> bool:
    """Return whether the network reads cosine coefficients."""
    return bool(recording.get("basis", "chunks") == "cosines")


def follows(recording: Mapping[str, Any]) -> bool:
    """Return whether every frame is placed relative to its own roots."""
    return bool(recording.get("origin", ORIGINS[0]) == "frame")


def work(recording: Mapping[str, Any]) -> int:
    """Return the bytes of stack that the cosine transform in C needs.

    >>> work({"chunks": 32}), work({"chunks": 32, "basis": "cosines"})
    (0, 384)
    """
    return 4 * 3 * int(recording["chunks"]) if waves(recording) else 0


def divisor(recording: Mapping[str, Any]) -> float:
    """Return the divisor of coordinates: the scale, and the factor √(2/M) of the DCT."""
    scale: float = recording["scale"]
    return scale * math.sqrt(recording["chunks"] / 2) if waves(recording) else scale


def bone_length(recording: Mapping[str, Any]) -> float:
    """Return the average length of the bones after the division."""
    return float(recording.get("length", 1.0)) / divisor(recording)


def cosine_table(chunks: int) -> NDArray[np.float32]:
    """Return the factors of the transform in C (``cosine.h``).

    They are the factors of each halving and, if an odd size is left, the cosines of a circle.

    >>> [round(float(factor), 3) for factor in cosine_table(2)]
    [1.414]
    >>> len(cosine_table(32)), len(cosine_table(5)), len(cosine_table(1))
    (28, 20, 0)
    """
    parts, size = [np.zeros(0)], chunks
    while size % 2 == 0 and size != 4:  # size four has its own function
        parts.append(2 * np.cos(np.pi * (np.arange(size // 2) + 0.5) / size))
        size //= 2
    if size % 2 and size > 1:
        parts.append(np.cos(np.pi * np.arange(4 * size) / (2 * size)))
    return np.concatenate(parts).astype(np.float32)
