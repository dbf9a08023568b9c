"""A right and a wrong prediction of each class, as small moving skeletons."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..skeleton import Skeletons
from ..skeleton.skeletons import Indices
from ..skeleton.view import placed, turn_of

FRAMES = 40  # at most: a browser fills in between
GRID = 127  # a byte for each coordinate: as fine as the picture is


def examples(
    data: Skeletons, labels: Indices, tested: Sequence[int], said: Sequence[int]
) -> dict[str, Any]:
    """By class: the first recording that is named right and the first that is not.

    ``tested`` are recordings of ``data``, ``said`` the classes that a network gave them; ``labels``
    those that all recordings are of, counted as the network counts classes.
    """
    found: dict[str, dict[str, Any]] = {}
    for recording, answer in zip(tested, said, strict=True):
        truth = int(labels[recording])
        kind = "right" if truth == answer else "wrong"
        of_class = found.setdefault(str(truth), {"right": None, "wrong": None})
        if of_class[kind] is None:
            of_class[kind] = _moving(data, int(recording)) | {"said": int(answer)}
    return {"grid": GRID, "classes": found}


def _moving(data: Skeletons, recording: int) -> dict[str, Any]:
    frames = data.sequences[recording]
    points = placed(thinned(frames, FRAMES), turn_of(data.layout), GRID)
    whole = (points + GRID).astype(np.uint8)
    return {
        "name": data.names[recording],
        "length": len(frames),
        "frames": len(whole),
        "bytes": base64.b64encode(whole.tobytes()).decode("ascii"),
    }


def thinned(frames: NDArray[np.float32], most: int) -> NDArray[np.float32]:
    """At most so many frames, evenly spaced from the first to the last.

    >>> thinned(np.arange(9.0, dtype=np.float32).reshape(9, 1, 1), 3).ravel()
    array([0., 4., 8.], dtype=float32)
    """
    if len(frames) <= most:
        return frames
    at = np.linspace(0, len(frames) - 1, most)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, len(frames) - 1)
    part = (at - low)[:, None, None]
    mixed = (1 - part) * frames[low] + part * frames[high]
    return mixed.astype(np.float32)
