"""The 45 actions, in the order of their labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .hand import (
    CLAW,
    CRADLE,
    FIST,
    FLAT,
    HOOK,
    LATERAL,
    OPEN,
    PINCH,
    PLATE,
    POINT,
    RELAXED,
    SPHERE,
    TRIPOD,
    WRAP,
    Floats,
    Grip,
    Key,
    key,
)

# The first and the last pose of an action: relaxed, and nearer to the body.
_FROM = key(RELAXED, turn=35, up=-30, forward=-40)
_BACK = key(RELAXED, 1.5, turn=35, up=-30, forward=-40)


@dataclass(frozen=True)
class Action:
    """A movement: reach, repeat ``cycle`` a number of ``times``, and let go.

    ``does`` describes the action. All actions begin and end alike, so that only the cycle
    distinguishes them.
    """

    name: str
    does: str
    cycle: tuple[Key, ...]
    times: tuple[int, int] = (1, 1)
    before: Key = _FROM
    after: Key = _BACK

    @cached_property
    def keys(self) -> tuple[Floats, Floats]:
        """The beats (keys,) and poses (keys, 28) of reaching, one cycle and letting go."""
        every = (self.before, *self.cycle, self.after)
        return np.array([key.beats for key in every]), np.stack([key.pose() for key in every])


# Given, taken, and said with the hand.


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


# Buttons, keys and screens; sponges, cloths and paper.


_TYPING = RELAXED.but(index=(25, 35), middle=(25, 35), ring=(25, 36), little=(24, 36))
_RUN = (("index", -12), ("middle", -4), ("ring", 4), ("little", 12), ("ring", 4), ("middle", -4))
_TRIGGER = WRAP.but(index=(20, 25))


def _pressed(grip: Grip, finger: str) -> Grip:
    base, middle = getattr(grip, finger)
    return grip.but(**{finger: (base + 28, middle + 10)})


SURFACES = (
    Action(
        "dial_number",
        "tap keys with the forefinger, here and there",
        (
            key(POINT, 0.6, turn=60, right=-14, forward=20),
            key(_pressed(POINT, "index"), 0.4, turn=60, right=-14, up=-12, forward=24),
            key(POINT, 0.6, turn=60, right=14, forward=6),
            key(_pressed(POINT, "index"), 0.4, turn=60, right=14, up=-12, forward=10),
        ),
        times=(1, 4),
    ),
    Action(
        "ring_bell",
        "reach out, press a button for a while, take the hand back",
        (
            key(POINT, 1.0, turn=55, forward=30, up=40),
            key(POINT, 0.7, turn=55, forward=75, up=42),
            key(POINT, 1.0, turn=55, forward=75, up=42),
            key(POINT, 0.7, turn=55, forward=20, up=35),
        ),
    ),
    Action(
        "swipe_screen",
        "swipe with the forefinger, lift and come back",
        (
            key(POINT.but(index=(25, 20)), 0.6, turn=55, right=35, flex=5),
            key(POINT.but(index=(30, 25)), 0.6, turn=50, right=-40, flex=15),
            key(POINT, 0.7, turn=55, right=0, up=15, flex=-5),
        ),
        times=(2, 4),
    ),
    Action(
        "text_message",
        "type with the thumb on a phone that the fingers hold",
        (
            key(CRADLE.but(thumb=(25, 20, 15, 15)), 0.5, turn=-35, pitch=15),
            key(CRADLE.but(thumb=(35, 5, 35, 35)), 0.4, turn=-35, pitch=15),
            key(CRADLE.but(thumb=(5, 25, 10, 10)), 0.5, turn=-33, pitch=15),
            key(CRADLE.but(thumb=(15, 5, 35, 35)), 0.4, turn=-33, pitch=15),
        ),
        times=(2, 4),
    ),
    Action(
        "click_mouse",
        "move a mouse a little and click twice",
        (
            key(_TYPING, 1.0, turn=75, flex=-15, right=20),
            key(_TYPING, 1.0, turn=75, flex=-15, right=-20, forward=12),
            key(_pressed(_TYPING, "index"), 0.4, turn=75, flex=-15, right=-20, forward=12),
            key(_TYPING, 0.4, turn=75, flex=-15, right=-20, forward=12),
            key(_pressed(_TYPING, "index"), 0.4, turn=75, flex=-15, right=-20, forward=12),
        ),
        times=(1, 2),
    ),
    Action(
        "play_piano",
        "play a run, one finger after another",
        tuple(
            key(_pressed(_TYPING, finger), 0.5, turn=75, right=place, flex=-5)
            for finger, place in _RUN
        ),
        times=(1, 3),
    ),
    Action(
        "squeeze_sponge",
        "squeeze a sponge and let it grow again",
        (key(SPHERE, 0.8, turn=35), key(FIST, 0.8, turn=35)),
        times=(2, 4),
    ),
    Action(
        "crumple_paper",
        "crush paper in the hand, ever smaller, turning it",
        (
            key(SPHERE.but(spread=16), 0.8, turn=20),
            key(WRAP, 0.6, turn=45),
            key(SPHERE, 0.6, turn=25),
            key(FIST, 0.7, turn=50),
            key(WRAP, 0.5, turn=25),
            key(FIST, 0.7, turn=45),
        ),
    ),
    Action(
        "spray",
        "pull a spray bottle's trigger, aiming about",
        (
            key(_TRIGGER, 0.6, up=40, pitch=10),
            key(_TRIGGER.but(index=(50, 75), middle=(55, 72)), 0.5, up=40, pitch=10, yaw=6),
        ),
        times=(2, 5),
    ),
    Action(
        "wipe_table",
        "wipe a table with the flat hand, in wide circles",
        (
            key(FLAT, 0.8, turn=80, right=55, flex=-20, yaw=-6),
            key(FLAT, 0.8, turn=80, forward=40, flex=-12),
            key(FLAT, 0.8, turn=80, right=-55, flex=-20, yaw=12),
            key(FLAT, 0.8, turn=80, forward=-40, flex=-30),
        ),
        times=(1, 4),
    ),
    Action(
        "scrub_pan",
        "scrub with a sponge under bent fingers, to and fro",
        (
            key(CRADLE, 0.5, turn=78, forward=30, flex=-20),
            key(CRADLE, 0.5, turn=78, forward=-25, flex=-30),
        ),
        times=(3, 7),
    ),
    Action(
        "polish_glasses",
        "rub a lens between thumb and fingers, in small circles",
        (
            key(PINCH.but(thumb=(30, 15, 25, 30)), 0.5, turn=10, up=30),
            key(PINCH.but(index=(55, 35), middle=(42, 34)), 0.5, turn=14, up=30),
            key(PINCH.but(thumb=(18, 28, 25, 40)), 0.5, turn=10, up=30),
            key(PINCH.but(index=(44, 55), middle=(28, 46)), 0.5, turn=6, up=30),
        ),
        times=(2, 5),
    ),
    Action(
        "flip_page",
        "take a page by its corner, lead it over, smooth it down",
        (
            key(PINCH, turn=60, right=50),
            key(PINCH, 1.0, turn=10, right=10, up=45),
            key(PINCH, 1.0, turn=-35, right=-55, up=15),
            key(FLAT, 0.8, turn=70, right=-40),
        ),
        times=(1, 2),
    ),
    Action(
        "tear_paper",
        "hold paper by its edge and tear it towards the body",
        (
            key(PLATE, turn=20, forward=25, up=20),
            key(PLATE, 1.0, turn=55, forward=-45, right=30, up=10),
            key(PLATE, 0.7, turn=20, forward=20, up=20),
        ),
        times=(1, 3),
    ),
)


# Spoons, pens and other tools: mostly one grip, told apart by what the arm does.


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


# Caps, lids and keys: opening and closing differ by the way the grip is on the return.


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


# Bottles, jugs, cups and glasses: poured, drunk from, raised, shaken.


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


ACTIONS: tuple[Action, ...] = (*TURNING, *VESSELS, *TOOLS, *SURFACES, *PEOPLE)

__all__ = ["ACTIONS", "Action"]
