"""Settings of data augmentation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ....errors import TrellisError
from ..layouts import Layout

AXES = "xyz"


@dataclass(frozen=True)
class Augmentation:
    """The limits of random variants, which are drawn uniformly for each recording and step.

    The defaults were chosen on recordings held out of four training sets
    (docs/results/choosing.md).

    Args:
        rotation: The largest angles in degrees about the x, y and z axis through the root, either
            way. Rotations are applied in this order.
        scale: The largest relative change of size; 0.2 is from 0.8 to 1.2 times.
        warp: The largest relative change of speed within a recording, from 0 to below 1. The first
            and the last moment stay.
        crop: The smallest share of a recording that is kept and stretched to its whole length.
        noise: The standard deviation of the noise on every coordinate, where that of normalized
            coordinates is 1.
        mirror: The probability of mirroring: joints are exchanged as the layout says, and the axis
            ``left_right`` is negated.
        left_right: The axis from left to right: 0, 1 or 2 for x, y or z.

    Raises:
        TrellisError: A setting is out of range.

    Example:
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
        """Raise if mirroring is on and the layout has no mirror image."""
        if self.mirror > 0 and layout.mirror is None:
            raise TrellisError(
                f"mirror={self.mirror!r} and layout {layout.name!r} defines no mirror: set "
                "mirror=0 (the mirror image of one hand is the other hand)"
            )

    @property
    def retimes(self) -> bool:
        """Whether it changes the time axis."""
        return self.warp > 0 or self.crop < 1

    @property
    def moves(self) -> bool:
        """Whether it does more than add noise."""
        return self.retimes or any(self.rotation) or self.scale > 0 or self.mirror > 0

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them."""
        return {**vars(self), "rotation": list(self.rotation)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
