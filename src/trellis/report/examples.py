"""A right and a wrong prediction of each class, as small moving skeletons."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..paper import Folder
from ..skeleton import Fold, Frames, Layout, Skeletons
from ..skeleton.data.pose import placed, turn_of

# The confusion matrix, as the page stores it.


def flat(pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Encode labels and predictions as truth, said, count, truth, said, count, …

    >>> flat([(0, 0), (1, 0), (0, 0)])
    [0, 0, 2, 1, 0, 1]
    """
    counts = Counter(pairs)
    return [number for pair in sorted(counts) for number in (*pair, counts[pair])]


def of_matrix(matrix: NDArray[np.int64]) -> list[int]:
    """
    >>> of_matrix(np.array([[2, 0], [1, 0]]))
    [0, 0, 2, 1, 0, 1]
    """
    places = np.argwhere(matrix)
    return [int(n) for row, column in places for n in (row, column, matrix[row, column])]


def pooled(
    said: Iterable[tuple[int, Sequence[int]]], labels: Sequence[Sequence[int]]
) -> list[int] | None:
    """Sum over networks: each is a fold and its predictions for the fold's test recordings."""
    pairs: list[tuple[int, int]] = []
    for fold, answers in said:
        if fold >= len(labels) or len(labels[fold]) != len(answers):
            return None
        pairs += zip(labels[fold], answers, strict=True)
    return flat(pairs) if pairs else None


# The test recordings that a page shows: two of each class.


# From numbers of test recordings to their names and frames.
Tested = Callable[[Sequence[int]], list[tuple[str, Frames]]]

# hands45 in a run's settings: the set is built in, and its bytes are the same everywhere.
BUILT_IN, DIGEST = "hands45", "f0651516d64d80365fccb245920dcea102d731fa9dc900cbb482f87dd6c1d0f0"


def from_fold(data: Skeletons, fold: Fold) -> Tested:
    def these(which: Sequence[int]) -> list[tuple[str, Frames]]:
        at = [int(fold.test[i]) for i in which]
        return [(data.names[i], data.sequences[i]) for i in at]

    return these


def from_built_in(folder: Folder) -> Tested | None:
    """Return the shown recordings of a run on the built-in set; None for any other run.

    To make all of hands45 takes longer than the rest of a page.
    """
    if (folder.settings.data, folder.data.digest) != (BUILT_IN, DIGEST):
        return None
    from ..skeleton.data.hands import some_of_hands45

    return some_of_hands45


FRAMES = 40  # at most; the browser interpolates
GRID = 127  # a byte for each coordinate: as fine as the picture is


def examples(
    tested: Tested, layout: Layout, labels: Sequence[int], said: Sequence[int]
) -> dict[str, Any]:
    """Return, by class, the first recording that is classified correctly and the first that is not.

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
    """Return at most ``most`` frames, evenly spaced from the first to the last.

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
