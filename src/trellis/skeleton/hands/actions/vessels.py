"""Bottles, jugs, cups and glasses: poured, drunk from, raised, shaken."""

from __future__ import annotations

from ..grips import HOOK, SPHERE, TRIPOD, WRAP
from ..pose import key
from .action import Action

VESSELS = (
    Action(
        "pour_bottle",
        "lift a bottle, tip it inwards by turning the forearm, set it upright",
        (
            key(WRAP, turn=0, up=40),
            key(WRAP, 1.5, turn=70, up=70, yaw=8),
            key(WRAP, turn=75, up=70, yaw=8),
            key(WRAP, turn=0, up=40),
        ),
    ),
    Action(
        "pour_jug",
        "lift a jug by its handle and tip it forward at the wrist",
        (
            key(HOOK, turn=0, up=40),
            key(HOOK, 1.5, turn=8, deviate=32, up=70, pitch=-10),
            key(HOOK, turn=10, deviate=32, up=75, pitch=-12),
            key(HOOK, turn=0, up=40),
        ),
    ),
    Action(
        "pour_cup",
        "empty a cup outwards, the palm turning up",
        (
            key(WRAP.but(spread=8), turn=10, up=40),
            key(WRAP.but(spread=8), 1.2, turn=-65, up=60, yaw=-8),
            key(WRAP.but(spread=8), 0.6, turn=-70, up=60, yaw=-8),
            key(WRAP.but(spread=8), turn=10, up=40),
        ),
    ),
    Action(
        "drink_mug",
        "raise a mug by its handle to the mouth, tip it, put it down",
        (
            key(HOOK, turn=0),
            key(HOOK, 1.5, turn=15, pitch=45, yaw=30, up=60, forward=-60),
            key(HOOK, 1.2, turn=30, pitch=55, yaw=35, up=70, forward=-70, deviate=-10),
            key(HOOK, 1.5, turn=0),
        ),
    ),
    Action(
        "drink_glass",
        "raise a glass to the mouth, tip it, put it down",
        (
            key(WRAP, turn=0),
            key(WRAP, 1.5, turn=10, pitch=45, yaw=30, up=60, forward=-60),
            key(WRAP, 1.2, turn=32, pitch=55, yaw=35, up=70, forward=-70, deviate=-10),
            key(WRAP, 1.5, turn=0),
        ),
    ),
    Action(
        "toast",
        "raise a glass by its stem, clink it forward, lower it",
        (
            key(TRIPOD, turn=5),
            key(TRIPOD, 1.4, turn=5, pitch=25, up=80, forward=20),
            key(TRIPOD, 0.7, turn=8, pitch=25, up=85, forward=75, yaw=8),
            key(TRIPOD, 0.9, turn=5, pitch=22, up=70, forward=10),
        ),
    ),
    Action(
        "shake_salt",
        "hold a shaker upside down and shake salt out",
        (
            key(TRIPOD, 0.6, turn=70, flex=-10, up=60),
            key(TRIPOD, 0.5, turn=75, flex=25, up=40),
        ),
        times=(3, 6),
    ),
    Action(
        "swirl_glass",
        "swirl a glass held by its bowl, in small circles",
        (
            key(SPHERE, 0.6, turn=0, right=18, up=30),
            key(SPHERE, 0.6, turn=8, forward=18, up=30),
            key(SPHERE, 0.6, turn=0, right=-18, up=30),
            key(SPHERE, 0.6, turn=-8, forward=-18, up=30),
        ),
        times=(2, 5),
    ),
)
