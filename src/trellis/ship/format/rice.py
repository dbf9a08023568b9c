"""Whole numbers in few bits: the high part in unary, the low ``k`` bits as they are (Rice, 1979).

Gaps between random places are distributed geometrically, for which this is the shortest prefix
code up to rounding. The unary parts lie together and the low bits lie together, so that numpy
decodes a stream without a loop, and C with two pointers.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from ...errors import TrellisError

Ints = NDArray[np.int64]
FAR = 24
MARK = 0x80


def encoded(values: Ints) -> bytes:
    """k, how many bytes of unary follow, the unary part (q zeros and a one), the low bits.

    A number of which q would be `FAR` or more has FAR zeros there, and lies whole (32 bits) behind
    the low bits; k is then marked, and how many of these there are follows the size of the unary.

    >>> encoded(np.array([3, 0, 1])).hex()
    '00010000001a'
    """
    k = _best(values)
    high = np.minimum(values >> k, FAR)
    far = values[high == FAR]
    ends = np.cumsum(high + 1) - 1
    unary = np.zeros(int(ends[-1]) + 1 if len(values) else 0, np.uint8)
    unary[ends] = 1
    low = (values[:, None] >> np.arange(k - 1, -1, -1)) & 1  # (values, k)
    top = np.packbits(unary)
    head = struct.pack("<BI", k | (MARK if len(far) else 0), len(top))
    return b"".join(
        [
            head,
            struct.pack("<I", len(far)) if len(far) else b"",
            top.tobytes(),
            np.packbits(low.astype(np.uint8)).tobytes(),
            far.astype("<u4").tobytes(),
        ]
    )


def decoded(data: bytes, at: int, count: int) -> tuple[Ints, int]:
    """``count`` numbers from ``data[at:]``, and where the next thing begins."""
    k, size = struct.unpack_from("<BI", data, at)
    far, at = 0, at + 5
    if k & MARK:
        (far,) = struct.unpack_from("<I", data, at)
        k, at = k - MARK, at + 4
    rest = (count * k + 7) // 8
    if k > 31 or size + rest + 4 * far > len(data) - at:
        raise TrellisError("a table ends too early")
    if size > (count * (FAR + 1) + 7) // 8:  # seen before it is unpacked, at a byte a bit
        raise TrellisError(f"a table of {count} entries has {size} bytes of unary")
    ends = np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8, size, at)))
    if len(ends) != count or size != (int(ends[-1]) // 8 + 1 if count else 0):
        raise TrellisError(f"a table has {len(ends)} entries where {count} are told")
    high = np.diff(ends, prepend=-1).astype(np.int64) - 1
    values = high.copy()
    if k:
        bits = np.unpackbits(np.frombuffer(data, np.uint8, rest, at + size))[: count * k]
        values = high << k
        for place in range(k):
            values += bits[place::k].astype(np.int64) << (k - 1 - place)
    if np.any(high > FAR) or int((high == FAR).sum()) != far:
        raise TrellisError("a table has another number of far entries than it tells")
    values[high == FAR] = np.frombuffer(data, "<u4", far, at + size + rest)
    if count and int(values.max()) >= 1 << 31:
        raise TrellisError("a table has an entry that is too large")
    return values, at + size + rest + 4 * far


def zigzag(values: Ints) -> Ints:
    """Small numbers of either sign as small numbers: 0, −1, 1, −2, … as 0, 1, 2, 3, …"""
    return (values << 1) ^ (values >> 63)


def unzigzag(values: Ints) -> Ints:
    return (values >> 1) ^ -(values & 1)


def _best(values: Ints) -> int:
    if len(values) == 0:
        return 0
    sizes = []
    for k in range(31):
        high = values >> k
        far = int((high >= FAR).sum())
        sizes.append(int(np.minimum(high, FAR).sum()) + len(values) * (k + 1) + 32 * far)
    return int(np.argmin(sizes))
