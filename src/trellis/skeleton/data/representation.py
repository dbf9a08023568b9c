"""What a network sees of a recording: places, how they change and differ, or of which waves."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import TrellisError
from ...limits import check_bytes, check_count
from ...training.stacks import Forward
from .layouts import Layout

# Temporal chunking: a recording of any length becomes M averages per joint.


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


# Motion as a sum of waves: the cosine transform of what each joint does over its chunks.
#
# A weight on a chunk sees a joint at one moment. A weight on a coefficient sees one wave of the
# whole motion: where it is on average, from where to where it goes, whether it comes back. A
# dense network can make either out of the other; one that keeps a weight in a thousand cannot,
# and is more accurate on waves (docs/results.md).


def cosines(chunks: int) -> NDArray[np.float64]:
    """(chunks, chunks): row k is half k waves over the chunks, rows orthonormal (the DCT-II).

    >>> cosines(2).round(3).tolist()
    [[0.707, 0.707], [0.707, -0.707]]
    >>> bool(np.allclose(cosines(5) @ cosines(5).T, np.eye(5)))
    True
    """
    k, m = np.arange(chunks)[:, None], np.arange(chunks)
    waves = np.sqrt(2 / chunks) * np.cos(np.pi * (m + 0.5) * k / chunks)
    waves[0] = np.sqrt(1 / chunks)
    found: NDArray[np.float64] = waves
    return found


def in_cosines(x: Tensor) -> Tensor:
    """(…, chunks * 3), x y z of each chunk -> (…, chunks * 3), x y z of each coefficient.

    >>> still = torch.tensor([1.0, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3])        # at four moments
    >>> in_cosines(still).round(decimals=3).tolist()[:6]
    [2.0, 4.0, 6.0, 0.0, 0.0, 0.0]
    """
    with torch.autocast(x.device.type, enabled=False):  # a rounded wave is not the wave
        found: Tensor = x @ _by_axis(x.shape[-1] // 3, x.dtype, x.device)
    return found


@functools.cache
def _by_axis(chunks: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(chunks * 3, chunks * 3): the transform, transposed, of x, y and z each. Kept, because a
    captured graph cannot copy it from the host."""
    with torch.inference_mode(False):
        return torch.from_numpy(np.kron(cosines(chunks).T, np.eye(3))).to(device, dtype)


KINDS = ("coordinates", "velocity", "bones")
COORDINATES = KINDS[:1]
BASES = ("chunks", "cosines")


@dataclass(frozen=True)
class Channels:
    """The kinds of channels of each joint, one after another: part of the saved model.

    ``"coordinates"`` are as they come, x y z for each chunk. ``"velocity"`` is each chunk but the
    first less the one before it, 3 channels fewer: nothing is made up for the first, so that no
    channel is always zero. ``"bones"`` is a joint less its parent; a joint without a parent is
    less the origin, the root's average place, so that the bones alone still say all there is.

    In the basis ``"chunks"`` a channel is of one moment. In ``"cosines"`` it is of one wave over
    all of them (`cosines`), slowest first; velocity, from moment to moment, has no place there.

    Takes numpy arrays and tensors, (…, joints, chunks * 3) -> (…, joints, count(chunks)).

    >>> arm = Layout("arm", ("shoulder", "hand"), parents=(-1, 0))
    >>> channels = Channels.of(arm, ("velocity", "bones"))
    >>> channels.count(chunks=2)
    9
    >>> x = np.array([[1, 1, 1, 2, 3, 4], [5, 5, 5, 7, 7, 7]], np.float32)   # both at two moments
    >>> channels(x)
    array([[1., 2., 3., 1., 1., 1., 2., 3., 4.],
           [2., 2., 2., 4., 4., 4., 5., 4., 3.]], dtype=float32)
    """

    parents: tuple[int, ...]
    kinds: tuple[str, ...] = COORDINATES
    basis: str = BASES[0]

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise TrellisError(f"channels {kind!r} are unknown: they are {', '.join(KINDS)}")
        if not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise TrellisError(
                f"channels are {self.kinds!r}: give one kind or more of {', '.join(KINDS)}, each "
                "once"
            )
        if self.basis not in BASES:
            raise TrellisError(f"basis={self.basis!r} is unknown: it is {' or '.join(BASES)}")
        if self.basis == "cosines" and "velocity" in self.kinds:
            raise TrellisError(
                f"channels {', '.join(self.kinds)} in the basis 'cosines': velocity is from one "
                "chunk to the next; give coordinates, bones, or both, or take the basis 'chunks'"
            )
        count = len(self.parents)
        if not all(-1 <= parent < count for parent in self.parents):
            raise TrellisError(f"the parents {self.parents} are not among {count} joints")

    @classmethod
    def of(
        cls, layout: Layout, kinds: Sequence[str] = COORDINATES, basis: str = BASES[0]
    ) -> Channels:
        """Channels of these ``kinds``, in this order, for the bones of a layout."""
        if isinstance(kinds, str):
            raise TrellisError(f"channels are {kinds!r}: give a list of kinds, ({kinds!r},)")
        return cls(tuple(layout.parents), tuple(kinds), basis)

    def count(self, chunks: int) -> int:
        """How many channels a joint has."""
        return sum(3 * (chunks - 1 if kind == "velocity" else chunks) for kind in self.kinds)

    @overload
    def __call__(self, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: NDArray[Any]) -> NDArray[Any]: ...
    def __call__(self, x: Tensor | NDArray[Any]) -> Tensor | NDArray[Any]:
        """(…, joints, chunks * 3) -> (…, joints, count(chunks)), of the same type."""
        if x.ndim < 2 or x.shape[-2] != len(self.parents) or x.shape[-1] % 3 or not x.shape[-1]:
            raise TrellisError(
                f"recordings of the shape {tuple(x.shape)}: channels are made of (…, "
                f"{len(self.parents)} joints, 3 coordinates for each chunk)"
            )
        if not isinstance(x, Tensor):
            found: NDArray[Any] = self(torch.tensor(np.ascontiguousarray(x))).numpy()
            return found
        if self.basis == "cosines":
            x = in_cosines(x)
        if self.kinds == COORDINATES:
            return x
        return torch.cat([self._channels(kind, x) for kind in self.kinds], dim=-1)

    def _channels(self, kind: str, x: Tensor) -> Tensor:
        if kind == "coordinates":
            return x
        if kind == "velocity":
            return x[..., 3:] - x[..., :-3]
        # Views rather than an index of parents: an index would be copied from the host, which a
        # captured graph cannot do.
        joints = [x[..., j : j + 1, :] for j in range(len(self.parents))]
        ends = zip(joints, self.parents, strict=True)
        bones = [joint - joints[p] if p >= 0 else joint for joint, p in ends]
        return torch.cat(bones, dim=-2)


def seeing(channels: Channels, forward: Forward) -> Forward:
    """A stack's function of places, for networks that see these channels of them."""
    return lambda weights, places: forward(weights, channels(places))
