"""Given, taken, and said with the hand."""

from __future__ import annotations

from ..grips import CRADLE, FIST, FLAT, OPEN, PINCH, PLATE, WRAP
from ..pose import key
from .action import Action

PEOPLE = (
    Action(
        "wave",
        "wave the open hand from side to side",
        (
            key(OPEN, 0.6, turn=80, pitch=60, deviate=-15, up=40),
            key(OPEN, 0.6, turn=80, pitch=60, deviate=30, up=40, yaw=10),
        ),
        times=(2, 5),
    ),
    Action(
        "high_five",
        "raise the open hand, swing it forward to meet another, draw back",
        (
            key(OPEN, 1.0, turn=75, pitch=60, up=40, flex=-15),
            key(OPEN, 0.5, turn=75, pitch=50, up=60, forward=80, flex=5),
            key(OPEN, 0.9, turn=75, pitch=50, up=40, forward=0),
        ),
    ),
    Action(
        "shake_hands",
        "hold out the hand, take another and shake it",
        (
            key(FLAT.but(thumb=(-10, 20, 0, 5)), 0.7, forward=50),
            key(WRAP.but(index=(30, 25), middle=(32, 28)), 0.5, forward=55, up=18, pitch=6),
            key(WRAP.but(index=(30, 25), middle=(32, 28)), 0.5, forward=55, up=-14, pitch=-6),
            key(WRAP.but(index=(30, 25), middle=(32, 28)), 0.5, forward=55, up=16, pitch=6),
        ),
        times=(1, 2),
    ),
    Action(
        "beckon",
        "call somebody nearer, curling the fingers with the palm up",
        (
            key(FLAT, 0.7, turn=-60, pitch=15, flex=0),
            key(CRADLE.but(index=(60, 70), middle=(62, 72)), 0.6, turn=-60, pitch=20, flex=30),
        ),
        times=(2, 5),
    ),
    Action(
        "give_coin",
        "hold out a coin between thumb and forefinger and let it go",
        (
            key(PINCH, 1.2, turn=55, forward=60, up=15),
            key(PINCH, 0.5, turn=55, forward=65, up=5),
            key(OPEN, 0.6, turn=60, forward=60, up=15),
        ),
    ),
    Action(
        "take_coin",
        "hold out the palm, take a coin and close the hand over it",
        (
            key(FLAT, 1.2, turn=-65, forward=60, up=5),
            key(CRADLE, 0.8, turn=-65, forward=60, up=0),
            key(FIST, 0.8, turn=-45, forward=20, up=5),
        ),
    ),
    Action(
        "give_card",
        "hold out a card, flat between thumb and fingers, and let it go",
        (
            key(PLATE, 1.2, turn=20, forward=60, up=15),
            key(PLATE, 0.6, turn=15, forward=70, up=12),
            key(OPEN, 0.6, turn=25, forward=60, up=15),
        ),
    ),
)
