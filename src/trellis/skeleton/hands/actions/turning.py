"""Caps, lids and keys: opening and closing differ by the way the grip is on the return."""

from __future__ import annotations

from ..grips import CLAW, LATERAL, TRIPOD, WRAP
from ..pose import Grip, key
from .action import Action


def _loosened(grip: Grip) -> Grip:
    """The same grip, let go of: the thumb away, the fingers less bent."""
    flexion, aside, middle, end = grip.thumb
    fingers = {
        name: (0.7 * getattr(grip, name)[0], 0.7 * getattr(grip, name)[1])
        for name in ("index", "middle", "ring", "little")
    }
    return grip.but(thumb=(flexion - 12, aside + 8, 0.6 * middle, 0.6 * end), **fingers)


def _twist(name: str, does: str, grip: Grip, start: float, end: float, lift: float) -> Action:
    """Turn from ``start`` to ``end`` holding on, go back loosened, rise by ``lift`` on the way."""
    loose = _loosened(grip)
    return Action(
        name,
        does,
        (
            key(grip, turn=start, deviate=-5),
            key(grip, 1.2, turn=end, deviate=10, up=lift),
            key(loose, 0.5, turn=end, deviate=8, up=lift + 6),
            key(loose, 0.9, turn=start, deviate=-5, up=6),
        ),
        times=(2, 4),
    )


TURNING = (
    _twist("open_bottle", "twist a bottle's cap off, regripping it", TRIPOD, 65, -10, 6),
    _twist("close_bottle", "twist a bottle's cap on, regripping it", TRIPOD, -10, 65, -6),
    _twist("open_jar", "twist a wide lid off, regripping it", CLAW, 75, 5, 6),
    _twist("close_jar", "twist a wide lid on, regripping it", CLAW, 5, 75, -6),
    Action(
        "turn_key",
        "put a key in, turn it and turn it back",
        (
            key(LATERAL, turn=0, forward=25),
            key(LATERAL, 0.8, turn=0, forward=45),
            key(LATERAL, turn=70, forward=45),
            key(LATERAL, 0.8, turn=0, forward=45),
        ),
        times=(1, 2),
    ),
    Action(
        "drive_screw",
        "turn a screwdriver in strokes, pushing forward",
        (
            key(WRAP, turn=-30, forward=20, pitch=-5),
            key(WRAP, 0.8, turn=50, forward=26, pitch=-5),
        ),
        times=(4, 7),
    ),
)
