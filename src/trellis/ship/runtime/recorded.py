"""One recording as the input of a network, by the same C that a device runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..recording import bone_length, cosine_table, divisor, waves
from .library import library


def recorded(frames: NDArray[np.float32], recording: Mapping[str, Any]) -> NDArray[np.float32]:
    """(frames, joints, 3), contiguous, -> (joints, chunks · 3), as the notes of a `Recording` say.

    >>> notes = {"joints": ["hand"], "chunks": 2, "roots": [0], "scale": 0.5}
    >>> recorded(np.arange(12, dtype=np.float32).reshape(4, 1, 3), notes)
    array([[-6., -6., -6.,  6.,  6.,  6.]], dtype=float32)
    """
    count, joints = frames.shape[:2]
    chunks = recording["chunks"]
    roots = np.array(recording["roots"], np.uintc)
    made = np.empty((joints, chunks * 3), np.float32)
    table = work = None
    body, bones = (
        np.array(recording[name], np.uintc) if recording.get(name) else None
        for name in ("body", "bones")
    )
    if waves(recording):
        table = np.append(cosine_table(chunks), np.float32(0))  # of one chunk, it is empty
        work = np.empty(3 * chunks, np.float32)
    library().trellis_recorded(
        frames.ctypes.data, count, joints, chunks, roots.ctypes.data, len(roots),
        divisor(recording), made.ctypes.data, _place(body), _place(bones),
        0 if bones is None else len(bones), bone_length(recording), _place(table), _place(work),
    )  # fmt: skip
    return made


def _place(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data
