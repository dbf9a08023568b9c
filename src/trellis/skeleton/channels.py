"""What a network sees of a recording: places, how they change and differ, or of which waves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import TrellisError
from ..train.stacked import Forward
from .cosines import in_cosines
from .layout import Layout

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
