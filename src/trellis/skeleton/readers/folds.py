"""Ways of dividing recordings into those to train on and those to test on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..skeletons import Fold, Indices

Folds = tuple[Fold, ...]
HALVES = "half and half by class, drawn with seed 0 (the source gives no split)"


def split(name: str, test: Sequence[bool]) -> Folds:
    """One fold, as the source says.

    >>> split("given", [False, True, False])
    (Fold(name='given', train=array([0, 2]), test=array([1])),)
    """
    chosen = np.asarray(test, bool)
    return (Fold(name, _where(~chosen), _where(chosen)),)


def held_out(groups: Sequence[str]) -> Folds:
    """A fold for each group, in order of name, that tests on it and trains on the others.

    >>> [(fold.name, fold.test.tolist()) for fold in held_out(["anna", "bela", "anna"])]
    [('anna', [0, 2]), ('bela', [1])]
    """
    return tuple(
        fold
        for group in sorted(set(groups))
        for fold in split(group, [other == group for other in groups])
    )


def half_and_half(labels: Indices) -> Folds:
    """One fold by chance, the same every time: half of each class, rounded up, to train on.

    >>> fold, = half_and_half(np.array([0, 0, 0, 1, 1, 1, 1]))
    >>> len(fold.train), len(fold.test)
    (4, 3)
    """
    random = np.random.default_rng(0)
    test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        test[random.permutation(mine)[(len(mine) + 1) // 2 :]] = True
    return split(HALVES, list(test))


def _where(chosen: ArrayLike) -> Indices:
    return np.flatnonzero(chosen).astype(np.int64)
