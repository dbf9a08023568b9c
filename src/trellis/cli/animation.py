"""A recording as a page that shows it moving: one HTML file, nothing fetched from anywhere."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.skeleton import Layout, Skeletons
from trellis.skeleton.readers.text import shown

VIEWS = {"front": (0, 0), "side": (90, 0), "top": (0, 90)}  # turned by, and tilted by, degrees
GRID = 1000  # positions are whole numbers from -GRID to GRID: a third of the size, as good to see

# From a recording's axes to right, up, towards the viewer; each is a rotation, so that no left
# hand becomes a right one.
_UP = {
    "y": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "y-down": ((1, 0, 0), (0, -1, 0), (0, 0, -1)),
    "z": ((1, 0, 0), (0, 0, 1), (0, -1, 0)),
    "z-down": ((1, 0, 0), (0, 0, -1), (0, 1, 0)),
    "x": ((0, -1, 0), (1, 0, 0), (0, 0, 1)),
    "x-down": ((0, 1, 0), (-1, 0, 0), (0, 0, 1)),
}
# Cameras differ, and two sets give fractions of an image, which is not square: metres for SBU (its
# authors' formula), and for MediaPipe's hands a picture of 4 to 3.
_KNOWN = {
    "fpha": np.diag((1, -1, -1)),
    "hand": np.diag((1, -1, -1)),
    "mediapipe-hand": np.diag((4 / 3, -1, -4 / 3)),
    "nw-ucla": np.diag((-1, 1, -1)),
    "sbu": np.diag((-2.56, -1.92, -1.28)),
    "shrec17": np.diag((1, 1, -1)),
}


def page(
    data: Skeletons, number: int, *, view: str = "front", up: str | None = None, fps: float = 30
) -> str:
    """The page for ``data.sequences[number]``."""
    turn = _UP[up] if up is not None else _KNOWN.get(data.layout.name, _UP["y"])
    name, label = shown(data.names[number]), shown(data.classes[data.labels[number]])
    frames = len(data.sequences[number])
    about = f"{shown(data.source)} · {name} · {frames:,} frames"
    if data.synthetic:
        about += " · synthetic"
    content = {
        "frames": placed(data.sequences[number], np.asarray(turn, float)).tolist(),
        "bones": data.layout.bones,
        "joints": [shown(joint) for joint in data.layout.joints],
        "colours": branches(data.layout),
        "views": VIEWS,
        "view": view,
        "fps": fps,
        "grid": GRID,
    }
    parts = {
        "title": html.escape(f"{label} · {name}"),
        "heading": html.escape(label),
        "about": html.escape(about),
        "data": _inside_script(content),
    }
    template = files("trellis.cli").joinpath("animation.html").read_text(encoding="utf-8")
    # In one pass: what is put in is never looked through for more places.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def placed(frames: NDArray[np.float32], turn: NDArray[np.float64]) -> NDArray[np.int64]:
    """(frames, joints * 3) whole numbers: turned, centred, and one scale for all three axes.

    >>> still = np.array([[[0, 0, 0], [2, 0, 0], [0, 1, 0]]], np.float32)
    >>> placed(still, np.eye(3))
    array([[-894, -447,    0,  894, -447,    0, -894,  447,    0]])
    """
    points = frames.astype(np.float64) @ turn.T
    flat = points.reshape(-1, 3)
    points -= (flat.min(axis=0) + flat.max(axis=0)) / 2
    radius = np.linalg.norm(points, axis=-1).max() or 1.0
    return np.rint(points * (GRID / radius)).astype(np.int64).reshape(len(frames), -1)


def branches(layout: Layout) -> list[int]:
    """A number for each joint, the same along a finger or a limb; across people, for each person.

    >>> branches(Layout("hand", ("wrist", "thumb", "thumb tip", "index"), (-1, 0, 1, 0)))
    [0, 1, 1, 2]
    """
    chains = [_up_to_root(layout.parents, joint) for joint in range(len(layout.joints))]
    tops = [chain[-1] for chain in chains]
    if len(set(tops)) == 1:  # one skeleton: by what hangs on its root
        tops = [chain[-2] if len(chain) > 1 else chain[-1] for chain in chains]
    order = list(dict.fromkeys(tops))
    return [order.index(top) for top in tops]


def _up_to_root(parents: tuple[int, ...], joint: int) -> list[int]:
    chain = [joint]
    while (above := parents[chain[-1]]) >= 0 and above not in chain:  # bones may form a ring
        chain.append(above)
    return chain


def _inside_script(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
