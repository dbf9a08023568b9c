"""Spoons, pens and other tools: mostly one grip, told apart by what the arm does."""

from __future__ import annotations

from ..grips import LATERAL, PINCH, TRIPOD
from ..pose import key
from .action import Action

_SCISSORS = LATERAL.but(thumb=(15, 20, 25, 25), index=(35, 30), middle=(40, 40))

TOOLS = (
    Action(
        "stir",
        "stir a cup with a spoon, in circles",
        (
            key(TRIPOD, 0.6, turn=40, right=16, flex=15),
            key(TRIPOD, 0.6, turn=44, forward=16, flex=20),
            key(TRIPOD, 0.6, turn=40, right=-16, flex=15),
            key(TRIPOD, 0.6, turn=36, forward=-16, flex=10),
        ),
        times=(2, 5),
    ),
    Action(
        "scoop",
        "dip a spoon, lift it level and bring it nearer",
        (
            key(TRIPOD, turn=45, up=10, flex=25),
            key(TRIPOD, 0.9, turn=55, up=-25, flex=30, forward=25),
            key(TRIPOD, 1.0, turn=10, up=25, flex=0, forward=15),
            key(TRIPOD, 1.0, turn=15, up=45, flex=0, forward=-45),
        ),
        times=(1, 2),
    ),
    Action(
        "whisk",
        "beat quickly in an upright ellipse",
        (
            key(TRIPOD, 0.4, turn=35, up=14, deviate=-8),
            key(TRIPOD, 0.4, turn=40, forward=20, deviate=8),
            key(TRIPOD, 0.4, turn=35, up=-14, deviate=18),
            key(TRIPOD, 0.4, turn=30, forward=-20, deviate=4),
        ),
        times=(3, 7),
    ),
    Action(
        "write",
        "write a line: small strokes of the fingers while the hand goes right",
        (
            key(TRIPOD, 0.5, turn=45, right=-40),
            key(TRIPOD.but(index=(40, 62), middle=(44, 66)), 0.5, turn=45, right=-24, up=4),
            key(TRIPOD, 0.5, turn=45, right=-8),
            key(TRIPOD.but(index=(40, 62), middle=(44, 66)), 0.5, turn=45, right=8, up=4),
            key(TRIPOD, 0.5, turn=45, right=24),
            key(TRIPOD.but(index=(40, 62), middle=(44, 66)), 0.5, turn=45, right=40, up=4),
        ),
        times=(1, 3),
    ),
    Action(
        "erase",
        "rub something out, from side to side",
        (
            key(TRIPOD, 0.5, turn=45, right=-18, deviate=-10),
            key(TRIPOD, 0.5, turn=45, right=18, deviate=14),
        ),
        times=(3, 7),
    ),
    Action(
        "paint",
        "draw a brush down and lead it up again, the wrist trailing",
        (
            key(TRIPOD, 0.9, turn=15, up=45, flex=25, forward=40),
            key(TRIPOD, 0.9, turn=15, up=-25, flex=-30, forward=40),
        ),
        times=(2, 4),
    ),
    Action(
        "cut_scissors",
        "open and close scissors while moving forward",
        (
            key(_SCISSORS.but(thumb=(-5, 30, 5, 10)), 0.7, turn=10, forward=10),
            key(_SCISSORS, 0.7, turn=10, forward=25),
        ),
        times=(3, 6),
    ),
    Action(
        "slice",
        "saw with a knife, forward and back",
        (
            key(LATERAL, 0.6, turn=25, forward=45, up=10, pitch=-5),
            key(LATERAL, 0.6, turn=25, forward=-15, up=-5, pitch=4),
        ),
        times=(2, 5),
    ),
    Action(
        "brush_teeth",
        "move a brush quickly to and fro before the mouth",
        (
            key(LATERAL, 0.4, turn=-10, pitch=45, yaw=45, up=60, forward=-40, right=18),
            key(LATERAL, 0.4, turn=-4, pitch=45, yaw=45, up=60, forward=-40, right=-18),
        ),
        times=(4, 8),
    ),
    Action(
        "strike_match",
        "draw a match along its box, fast, and hold it up",
        (
            key(PINCH, turn=55, right=-35),
            key(PINCH, 0.4, turn=40, right=40, forward=25),
            key(PINCH, 1.0, turn=10, right=15, up=45),
            key(PINCH, 1.0, turn=10, right=15, up=45),
        ),
    ),
)
