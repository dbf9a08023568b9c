"""Random numbers that are the same on every machine and under every version of numpy."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_16, _32 = np.uint64(16), np.uint64(32)
_QUARTERS, _HALF = np.uint64(0x0000FFFF0000FFFF), np.uint64(0xFFFFFFFF)


class Chance:
    """A stream of random numbers, seeded by integers.

    numpy guarantees PCG64's raw words, but not the results of its Generator. Here, words become
    numbers by integer arithmetic and one multiplication, which give the same bits everywhere.
    Logarithms would not.

    >>> Chance(7, 1).uniform(0, 10, 3).round(3)
    array([7.701, 1.119, 1.891])
    >>> bool(np.all(Chance(7, 1).normal(5) == Chance(7, 1).normal(5)))
    True
    """

    def __init__(self, *name: int) -> None:
        self._words = np.random.PCG64(np.random.SeedSequence(name))

    def uniform(self, low: float, high: float, *shape: int) -> Floats:
        """Return uniform numbers from ``low`` to below ``high``."""
        words = self._raw(*shape) >> np.uint64(11)
        return low + (high - low) * (words.astype(np.float64) * 2.0**-53)

    def normal(self, *shape: int) -> Floats:
        """Return nearly normal numbers of mean 0 and standard deviation 1, none beyond 3.5.

        Each is the sum of the four 16-bit quarters of a word.
        """
        words = self._raw(*shape)
        pairs = words & _QUARTERS  # two at a time, each with room for the sum
        words >>= _16
        words &= _QUARTERS
        pairs += words
        total = pairs >> _32
        pairs &= _HALF
        total += pairs
        numbers = total.astype(np.float64)
        numbers -= 2 * 65535.0
        numbers *= 3**0.5 / 65536
        return numbers

    def whole(self, low: int, high: int) -> int:
        """Return a random integer from ``low`` to ``high``, both included."""
        return low + int(self.uniform(0, high - low + 1))

    def shuffled(self, count: int) -> NDArray[np.int64]:
        """0 to ``count`` − 1 in random order."""
        return np.argsort(self._raw(count), kind="stable")

    def _raw(self, *shape: int) -> NDArray[np.uint64]:
        return np.asarray(self._words.random_raw(math.prod(shape)), np.uint64).reshape(shape)
