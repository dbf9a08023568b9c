"""Buttons, keys and screens; sponges, cloths and paper."""

from __future__ import annotations

from ..grips import CRADLE, FIST, FLAT, PINCH, PLATE, POINT, RELAXED, SPHERE, WRAP
from ..pose import Grip, key
from .action import Action

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
