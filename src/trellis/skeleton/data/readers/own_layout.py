"""Layouts of your own recordings: from joint names or ``layout.json``; recordings in JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import TrellisError
from ..dataset import Frames
from ..layouts import LAYOUTS, Layout
from .text import LARGEST, at, brief, flat, read_bytes

# Recordings as nested lists in JSON.


def read_json(path: Path) -> Any:
    """Return what a JSON file holds."""
    content = read_bytes(path)
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise TrellisError(f"{at(path)}: invalid UTF-8 text ({error.reason})") from None
    except json.JSONDecodeError as error:
        raise TrellisError(f"{at(path, error.lineno)}: invalid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # numbers too long, nesting too deep
        raise TrellisError(f"{at(path)}: invalid JSON: {error}") from None


def json_frames(path: Path, value: Any, joints: Sequence[str]) -> Frames:
    """Convert nested lists to (frames, joints, 3); raise with the place that is wrong."""
    if not isinstance(value, list) or not value:
        raise TrellisError(f"{at(path)}: expected a list of frames, got {_kind(value)}")
    try:
        found = np.array(value)
    except (ValueError, OverflowError):  # ragged, or integers that are too large
        found = np.array(None)
    if found.shape == (len(value), len(joints), 2) and found.dtype.kind in "if":
        found = flat(found)
    whole = found.shape == (len(value), len(joints), 3) and found.dtype.kind in "if"
    if whole and (np.abs(found) <= LARGEST).all():  # false for NaN and infinity
        return found.astype(np.float32)
    for number, frame in enumerate(value):
        place = f"{at(path)}: frame {number}"
        if not isinstance(frame, list) or len(frame) != len(joints):
            raise TrellisError(f"{place}: expected {len(joints)} joints, got {_kind(frame)}")
        for name, point in zip(joints, frame, strict=True):
            if not isinstance(point, list) or len(point) != 3:
                raise TrellisError(f"{place}, {name!r}: expected x, y, z, got {_kind(point)}")
            for coordinate in point:
                number_like = isinstance(coordinate, int | float)
                if (
                    isinstance(coordinate, bool)
                    or not number_like
                    or not (abs(coordinate) <= LARGEST)
                ):
                    raise TrellisError(
                        f"{place}, {name!r}: expected a finite number within {LARGEST:g}, got "
                        f"{brief(repr(coordinate))}"
                    )
    raise TrellisError(f"{at(path)}: expected frames x {len(joints)} joints x 3 numbers")


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return {dict: "an object", str: "a string", type(None): "null"}.get(type(value), "a number")


KEYS = ("joints", "parents", "roots", "mirror", "body")
NONE = (None, "", "-1")  # no parent; numpy turns -1 among names into a string


def own_layout(
    joints: Sequence[str],
    parents: Sequence[Any] | None = None,
    roots: Sequence[Any] = (0,),
    mirror: Sequence[Any] | None = None,
    body: Sequence[Any] | None = None,
) -> Layout:
    """Make a layout from joint names; everything else is by name or number.

    None, "" and −1 mean no parent. Without parents there are no bones, unless the names are those
    of a known layout.

    >>> own_layout(["shoulder", "hand"], [None, "shoulder"]).bones
    ((0, 1),)
    >>> own_layout(["shoulder", "hand"], ["", "shoulder"]).bones
    ((0, 1),)
    >>> from trellis.skeleton.data.layouts import MEDIAPIPE_HAND
    >>> own_layout(MEDIAPIPE_HAND.joints).name
    'mediapipe-hand'
    """
    joints = tuple(joints)
    check_names(joints)
    if parents is None:
        for known in LAYOUTS.values():
            if known.joints == joints:
                return known
        parents = [-1] * len(joints)

    def number(joint: Any) -> int:
        if joint in NONE and joint not in joints:
            return -1
        if isinstance(joint, int) and not isinstance(joint, bool):
            return joint
        if joint in joints:
            return joints.index(joint)
        raise TrellisError(f"unknown joint {brief(str(joint))}; known: {', '.join(joints)}")

    return Layout(
        "own",
        joints,
        tuple(map(number, parents)),
        tuple(map(number, roots)),
        None if mirror is None else tuple(map(number, mirror)),
        None if body is None else tuple(map(number, body)),
    )


def check_names(joints: Sequence[str]) -> None:
    """Raise if a joint has no name, or two joints have the same."""
    if "" in joints:
        raise TrellisError(f"joint {joints.index('')} has no name")
    for place, name in enumerate(joints):
        if name in joints[:place]:
            raise TrellisError(f"the joint {brief(name)} is named twice")


def read_layout(path: Path) -> Layout:
    """Read a file such as ``{"joints": ["shoulder", "hand"], "parents": [null, "shoulder"]}``.

    ``roots``, ``mirror`` and ``body`` are optional. ``{"layout": "mediapipe-hand"}`` names a known
    layout.
    """
    given = read_json(path)
    if isinstance(given, dict) and set(given) == {"layout"}:
        known = LAYOUTS.get(str(given["layout"]))
        if known is None:
            raise TrellisError(
                f"{at(path)}: unknown layout {brief(str(given['layout']))}; known: "
                f"{', '.join(LAYOUTS)}"
            )
        return known
    if not isinstance(given, dict) or "joints" not in given or not set(given) <= set(KEYS):
        raise TrellisError(
            f"{at(path)}: expected an object with 'joints' and, optionally, 'parents', 'roots', "
            "'mirror' and 'body', or one with 'layout' alone"
        )
    for key, value in given.items():
        if not isinstance(value, list) or not all(
            isinstance(item, str | int | None) and not isinstance(item, bool) for item in value
        ):
            raise TrellisError(f"{at(path)}: expected a list of joints as {key!r}")
    if not all(isinstance(name, str) for name in given["joints"]):
        raise TrellisError(f"{at(path)}: expected a list of names as 'joints'")
    try:
        return own_layout(**given)
    except TrellisError as error:
        raise TrellisError(f"{at(path)}: {error}") from None
