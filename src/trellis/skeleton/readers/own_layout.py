"""Layouts of people's own recordings: from names, from ``layout.json``, or known by its joints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import TrellisError
from ..layout import Layout
from ..layouts import LAYOUTS
from .json_frames import read_json
from .text import at, brief

KEYS = ("joints", "parents", "roots", "mirror", "body")
NONE = (None, "", "-1")  # a list of -1 and names is, to numpy, a list of strings


def own_layout(
    joints: Sequence[str],
    parents: Sequence[Any] | None = None,
    roots: Sequence[Any] = (0,),
    mirror: Sequence[Any] | None = None,
    body: Sequence[Any] | None = None,
) -> Layout:
    """Joints by name; all else by name or number; no parent is None, "" or −1.

    Without parents there are no bones, unless the names are those of a known layout.

    >>> own_layout(["shoulder", "hand"], [None, "shoulder"]).bones
    ((0, 1),)
    >>> own_layout(["shoulder", "hand"], ["", "shoulder"]).bones
    ((0, 1),)
    >>> from trellis.skeleton.layouts import MEDIAPIPE_HAND
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
        raise TrellisError(f"{brief(str(joint))} is no joint; there are {', '.join(joints)}")

    return Layout(
        "own",
        joints,
        tuple(map(number, parents)),
        tuple(map(number, roots)),
        None if mirror is None else tuple(map(number, mirror)),
        None if body is None else tuple(map(number, body)),
    )


def check_names(joints: Sequence[str]) -> None:
    """Raise where a joint has no name, or two have one."""
    if "" in joints:
        raise TrellisError(f"joint {joints.index('')} has no name")
    for place, name in enumerate(joints):
        if name in joints[:place]:
            raise TrellisError(f"the joint {brief(name)} is named twice")


def read_layout(path: Path) -> Layout:
    """A file such as ``{"joints": ["shoulder", "hand"], "parents": [null, "shoulder"]}``.

    ``roots``, ``mirror`` and ``body`` may follow; or ``{"layout": "mediapipe-hand"}`` names a known
    one.
    """
    given = read_json(path)
    if isinstance(given, dict) and set(given) == {"layout"}:
        known = LAYOUTS.get(str(given["layout"]))
        if known is None:
            raise TrellisError(
                f"{at(path)}: {brief(str(given['layout']))} is no layout; there are "
                f"{', '.join(LAYOUTS)}"
            )
        return known
    if not isinstance(given, dict) or "joints" not in given or not set(given) <= set(KEYS):
        raise TrellisError(
            f"{at(path)}: an object with 'joints', and perhaps 'parents', 'roots', 'mirror' and "
            f"'body', is expected, or one with 'layout' alone"
        )
    for key, value in given.items():
        if not isinstance(value, list) or not all(
            isinstance(item, str | int | None) and not isinstance(item, bool) for item in value
        ):
            raise TrellisError(f"{at(path)}: {key!r} must be a list of joints")
    if not all(isinstance(name, str) for name in given["joints"]):
        raise TrellisError(f"{at(path)}: 'joints' must be a list of names")
    try:
        return own_layout(**given)
    except TrellisError as error:
        raise TrellisError(f"{at(path)}: {error}") from None
