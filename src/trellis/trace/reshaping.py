"""Reshaping: which dimensions of the old shape become which of the new."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1 << 12)
def groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions of both shapes that hold the same number of units.

    >>> groups((2, 3, 4), (6, 4))
    [([0, 1], [0]), ([2], [1])]
    """
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        olds: list[int] = []
        news: list[int] = []
        a = b = 1
        while True:
            if olds and news and a == b:
                break
            if (a <= b and i < len(old)) or j >= len(new):
                if i >= len(old):
                    break
                a *= old[i]
                olds.append(i)
                i += 1
            else:
                b *= new[j]
                news.append(j)
                j += 1
        # Trailing ones belong to the last run.
        while i < len(old) and old[i] == 1:
            olds.append(i)
            i += 1
        while j < len(new) and new[j] == 1:
            news.append(j)
            j += 1
        found.append((olds, news))
    return found
