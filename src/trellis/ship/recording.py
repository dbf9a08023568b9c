"""What a network expects of a recording, in plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Recording:
    """Frames of joints become one input: averaged over ``chunks``, centred, divided by ``scale``.

    The origin is the mean position, over time, of the joints whose numbers are ``roots``. The
    network reads (joints, chunks · 3).

    >>> Recording(("shoulder", "hand"), chunks=4, roots=(0,), scale=0.5).notes()["chunks"]
    4
    """

    joints: Sequence[str]
    chunks: int
    roots: Sequence[int]
    scale: float

    def notes(self) -> dict[str, Any]:
        """As it lies in a ``.trellis`` file."""
        return {
            "joints": list(self.joints),
            "chunks": int(self.chunks),
            "roots": [int(root) for root in self.roots],
            "scale": float(self.scale),
        }
