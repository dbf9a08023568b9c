"""Temporal chunking: a recording of any length becomes M averages per joint."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import TrellisError
from ..limits import check_bytes, check_count

CHUNKS = 32  # the paper's M


def chunked(sequences: Sequence[NDArray[np.float32]], chunks: int = CHUNKS) -> NDArray[np.float32]:
    """(frames, joints, 3) each -> (recordings, joints, chunks * 3).

    Frame t of T belongs to chunk ⌊tM/T⌋, and a chunk is the average of its frames. Where T < M
    some chunks have none: those are interpolated linearly at their centre, (m + ½)T/M, between
    the nearest frames. A joint's signal is its M averages one after another, x y z each.

    >>> ramp = np.arange(4, dtype=np.float32).reshape(4, 1, 1) * np.ones((1, 1, 3), np.float32)
    >>> chunked([ramp], chunks=2)[0, 0]
    array([0.5, 0.5, 0.5, 2.5, 2.5, 2.5], dtype=float32)
    >>> chunked([ramp], chunks=8)[0, 0, ::3]
    array([0.  , 0.75, 1.  , 1.75, 2.  , 2.75, 3.  , 3.  ], dtype=float32)
    """
    check_count("chunks", chunks)
    if len(sequences) == 0:
        raise TrellisError("there are no recordings to chunk")
    lengths = np.array([len(frames) for frames in sequences])
    if lengths.min() == 0:
        raise TrellisError(f"recording {int(lengths.argmin())} has no frames to chunk")
    joints, axes = sequences[0].shape[1:]
    check_bytes(
        4 * len(sequences) * chunks * joints * axes,
        f"{len(sequences):,} recordings in {chunks:,} chunks",
        "give fewer chunks, or fewer recordings",
    )
    frames = np.concatenate(sequences).reshape(lengths.sum(), joints * axes)
    first = np.concatenate([[0], np.cumsum(lengths)])[:-1]  # of each recording, among all frames

    # A chunk's first frame is the smallest t with tM/T >= m.
    starts = -(-np.arange(chunks) * lengths[:, None] // chunks)  # (recordings, chunks)
    counts = np.diff(starts, axis=1, append=lengths[:, None])
    full = counts > 0
    sums = np.add.reduceat(frames, (first[:, None] + starts)[full], axis=0, dtype=np.float64)
    means = np.empty((len(lengths), chunks, joints * axes), np.float32)
    means[full] = sums / counts[full][:, None]

    row, chunk = np.nonzero(~full)
    last = lengths[row] - 1
    centre = np.minimum((chunk + 0.5) * lengths[row] / chunks, last)
    before = np.floor(centre).astype(np.int64)
    after = np.minimum(before + 1, last)
    weight = (centre - before)[:, None]
    means[row, chunk] = (1 - weight) * frames[first[row] + before] + weight * frames[
        first[row] + after
    ]
    by_joint = means.reshape(len(lengths), chunks, joints, axes).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(by_joint).reshape(len(lengths), joints, chunks * axes)
