"""The one exception that Trellis raises on purpose."""

from __future__ import annotations


class TrellisError(Exception):
    """Something Trellis was given cannot be used; the message quotes it and says what to do.

    >>> raise TrellisError("sparsity=1.5: give a fraction from 0 up to, not including, 1")
    Traceback (most recent call last):
        ...
    trellis.errors.TrellisError: sparsity=1.5: give a fraction from 0 up to, not including, 1
    """
