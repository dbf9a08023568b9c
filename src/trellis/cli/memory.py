"""Memory that was freed, kept for the next step of training."""

from __future__ import annotations

import ctypes

_TRIM, _MMAP = -1, -3  # of glibc's mallopt: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_MOST = {_TRIM: (1 << 31) - 1, _MMAP: 1 << 30}  # bytes


def keep_freed() -> bool:
    """Let this process keep what it frees, where its C library knows how (glibc); whether it does.

    A step of training frees tens of megabytes that the next asks for again. Given back to the
    system in between, every page of them is cleared anew, which takes a fifth of the time on a
    CPU for one network, and half of it for four side by side.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; Windows has no CDLL(None)
        return False
    return all(mallopt(option, most) == 1 for option, most in _MOST.items())
