"""A right and a wrong prediction of each class, as small moving skeletons."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..skeleton import Layout
from ..skeleton.view import placed, turn_of
from .tested import Tested

FRAMES = 40  # at most: a browser fills in between
GRID = 127  # a byte for each coordinate: as fine as the picture is


def examples(
    tested: Tested, layout: Layout, labels: Sequence[int], said: Sequence[int]
) -> dict[str, Any]:
    """By class: the first recording that is named right and the first that is not.

    ``labels`` are the classes of the recordings tested on, ``said`` those that a network gave them.
    """
    first: dict[tuple[int, bool], int] = {}
    for number, (truth, answer) in enumerate(zip(labels, said, strict=True)):
        first.setdefault((int(truth), truth == answer), number)
    found: dict[str, dict[str, Any]] = {
        str(truth): {"right": None, "wrong": None} for truth, _ in first
    }
    shown = tested(list(first.values()))
    for ((truth, right), number), (name, frames) in zip(first.items(), shown, strict=True):
        found[str(truth)]["right" if right else "wrong"] = {
            "name": name,
            "length": len(frames),
            **_moving(frames, layout),
            "said": int(said[number]),
        }
    return {"grid": GRID, "classes": found}


def _moving(frames: NDArray[np.float32], layout: Layout) -> dict[str, Any]:
    points = placed(thinned(frames, FRAMES), turn_of(layout), GRID)
    whole = (points + GRID).astype(np.uint8)
    return {"frames": len(whole), "bytes": base64.b64encode(whole.tobytes()).decode("ascii")}


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
