"""How many frames recordings have: as in FPHA, 7 to 1,151, half of them below 77."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .chance import Floats

# So many in a thousand recordings are shorter than so many frames.
_SHARES = np.array([0, 50, 100, 250, 500, 750, 900, 950, 990, 1000])
_FRAMES = np.array([7, 22, 30, 50, 77, 108, 144, 176, 255, 1151])


def lengths(beats: Floats) -> NDArray[np.int64]:
    """Frames (recordings,): the longer it takes in beats, the more, as the distribution has it.

    Interpolated in whole numbers, so that no machine can round one of them otherwise.

    >>> lengths(np.array([3.0, 1.0, 2.0, 4.0, 5.0]))
    array([  77,    7,   50,  108, 1151])
    """
    longest = len(beats) - 1
    rank = np.argsort(np.argsort(beats, kind="stable"), kind="stable")
    place, shares = 1000 * rank, longest * _SHARES
    right = np.clip(np.searchsorted(shares, place), 1, len(shares) - 1)
    before, after = place - shares[right - 1], shares[right] - place
    gap = before + after
    frames = (_FRAMES[right - 1] * after + _FRAMES[right] * before + gap // 2) // gap
    return np.asarray(frames, np.int64)
