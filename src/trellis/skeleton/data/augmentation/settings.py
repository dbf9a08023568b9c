"""How far an augmented recording may be from the one that was made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ....errors import TrellisError
from ..layouts import Layout

AXES = "xyz"


@dataclass(frozen=True)
class Augmentation:
    """Limits of what is drawn, uniformly and for each recording, at every step. As they stand
    they were chosen by validation inside training parts of four sets (docs/results/choosing.md).

    ==============  =======================================================================
    ``rotation``    degrees either way about the x, y and z axis through the root; the turns
                    about x, y and z follow one another in this order
    ``scale``       share by which the size may change: 0.2 is from 0.8 to 1.2 times
    ``warp``        share by which the speed may change, smoothly, while a recording runs; the
                    first and the last moment stay what they are
    ``crop``        the least share of the recording that is kept, and stretched over all
                    chunks; 1 keeps all
    ``noise``       standard deviation of what is added to every coordinate of every chunk, in
                    units of the spread (1 in normalised coordinates)
    ``mirror``      how often left and right are exchanged: joints by the layout's mirror, and
                    the axis ``left_right`` turned round
    ``left_right``  the axis from left to right: 0, 1 or 2 for x, y or z
    ==============  =======================================================================

    >>> Augmentation(crop=0.8).rotation
    (30.0, 30.0, 30.0)
    >>> Augmentation(warp=1.5)
    Traceback (most recent call last):
    trellis.errors.TrellisError: warp=1.5 is not a number from 0 to below 1
    """

    rotation: tuple[float, float, float] = (30.0, 30.0, 30.0)
    scale: float = 0.2
    warp: float = 0.7
    crop: float = 0.75
    noise: float = 0.05
    mirror: float = 0.0
    left_right: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.rotation, tuple | list) or len(self.rotation) != 3:
            raise TrellisError(
                f"rotation={self.rotation!r} is not three numbers of degrees, about the x, y and "
                "z axis: give for example (20, 20, 20)"
            )
        for axis, degrees in zip(AXES, self.rotation, strict=True):
            if not (_is_number(degrees) and 0 <= degrees <= 180):
                raise TrellisError(
                    f"rotation={self.rotation!r}: about the {axis} axis it is {degrees!r}, not a "
                    "number of degrees from 0 to 180"
                )
        object.__setattr__(self, "rotation", tuple(self.rotation))
        for name in ("scale", "warp"):
            value = getattr(self, name)
            if not (_is_number(value) and 0 <= value < 1):
                raise TrellisError(f"{name}={value!r} is not a number from 0 to below 1")
        if not (_is_number(self.crop) and 0 < self.crop <= 1):
            raise TrellisError(
                f"crop={self.crop!r} is not a share of the recording above 0 and up to 1, which "
                "keeps all of it"
            )
        if not (_is_number(self.noise) and 0 <= self.noise < math.inf):
            raise TrellisError(f"noise={self.noise!r} is not a finite number from 0 up")
        if not (_is_number(self.mirror) and 0 <= self.mirror <= 1):
            raise TrellisError(f"mirror={self.mirror!r} is not a probability from 0 to 1")
        if isinstance(self.left_right, bool) or self.left_right not in (0, 1, 2):
            raise TrellisError(
                f"left_right={self.left_right!r} is not an axis: 0, 1 or 2 for x, y or z"
            )

    def check(self, layout: Layout) -> None:
        """Raise where a layout has no mirror image, and one is asked for."""
        if self.mirror > 0 and layout.mirror is None:
            raise TrellisError(
                f"mirror={self.mirror!r} and layout {layout.name!r} defines no mirror: set "
                "mirror=0 (the mirror image of one hand is the other hand)"
            )

    @property
    def retimes(self) -> bool:
        """Whether it moves anything in time."""
        return self.warp > 0 or self.crop < 1

    @property
    def moves(self) -> bool:
        """Whether it does anything but add noise."""
        return self.retimes or any(self.rotation) or self.scale > 0 or self.mirror > 0

    def to_dict(self) -> dict[str, Any]:
        """For a file: what JSON can hold."""
        return {**vars(self), "rotation": list(self.rotation)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
