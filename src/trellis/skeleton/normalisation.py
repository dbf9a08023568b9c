"""What is done to a chunked recording before a network sees it: part of the saved model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TrellisError
from .layout import Layout


@dataclass(frozen=True)
class Normalisation:
    """Coordinates relative to where the skeleton is on average, in units of ``scale``.

    The mean over time of the mean position of the ``roots`` becomes the origin, so that it does
    not matter where the recording took place, while its motion stays. ``scale`` is one number,
    learnt from the training split: the standard deviation of the centred coordinates.

    >>> x = np.zeros((1, 2, 6), np.float32)     # one recording, two joints, two chunks
    >>> x[0, :, ::3] = [[10, 12], [14, 16]]     # x of both joints, over time
    >>> Normalisation(roots=(0,), scale=2.0)(x)[0, :, ::3]
    array([[-0.5,  0.5],
           [ 1.5,  2.5]], dtype=float32)
    """

    roots: tuple[int, ...]
    scale: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise TrellisError(
                f"the scale of the coordinates is {self.scale!r}; it must be a finite number above "
                "0 (are all joints of all recordings in one place?)"
            )

    @classmethod
    def fit(cls, x: NDArray[np.float32], layout: Layout) -> Normalisation:
        """Learn the scale from chunked training recordings, (recordings, joints, chunks * 3)."""
        spread = float(_centred(x, layout.roots).std(dtype=np.float64))
        return cls(tuple(layout.roots), spread)

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(recordings, joints, chunks * 3), the same shape out."""
        return (_centred(x, self.roots) / np.float32(self.scale)).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        return {"roots": list(self.roots), "scale": self.scale}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Normalisation:
        try:
            return cls(tuple(int(root) for root in given["roots"]), float(given["scale"]))
        except (KeyError, TypeError, ValueError) as error:
            raise TrellisError(f"{given!r} is not a normalisation: {error}") from None


def _centred(x: NDArray[np.float32], roots: tuple[int, ...]) -> NDArray[np.float32]:
    points = x.reshape(*x.shape[:2], -1, 3)  # recordings, joints, chunks, axes
    centre = points[:, list(roots)].mean(axis=(1, 2), keepdims=True, dtype=np.float64)
    centred: NDArray[np.float32] = points - centre.astype(np.float32)
    return centred.reshape(x.shape)
