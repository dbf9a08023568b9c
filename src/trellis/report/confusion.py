"""Which class is taken for which, as the page holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


def flat(pairs: Iterable[tuple[int, int]]) -> list[int]:
    """(truth, said) of recordings -> truth, said, count, truth, said, count, …

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
    """Over networks: each is a fold and what it said of that fold's test recordings."""
    pairs: list[tuple[int, int]] = []
    for fold, answers in said:
        if fold >= len(labels) or len(labels[fold]) != len(answers):
            return None
        pairs += zip(labels[fold], answers, strict=True)
    return flat(pairs) if pairs else None
