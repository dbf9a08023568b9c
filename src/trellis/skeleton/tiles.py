"""Sides of the tiles that GPU kernels work on: powers of two, 16 at least."""

from __future__ import annotations


def power(size: int) -> int:
    """The least power of two from ``size`` up, 16 at least: what a tile's side may be.

    >>> power(3), power(21), power(64)
    (16, 32, 64)
    """
    return max(16, 1 << (size - 1).bit_length())


def two_parts(channels: int) -> dict[str, int]:
    """Two powers of two that hold the channels: the second is 0 where one is enough.

    >>> two_parts(96), two_parts(64), two_parts(70)
    ({'C1': 64, 'C2': 32}, {'C1': 64, 'C2': 0}, {'C1': 64, 'C2': 16})
    """
    whole = power(channels)
    if channels == whole or channels <= 16:
        return {"C1": whole, "C2": 0}
    return {"C1": whole // 2, "C2": power(channels - whole // 2)}
