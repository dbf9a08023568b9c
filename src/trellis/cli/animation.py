"""A recording as a page that shows it moving: one HTML file, nothing fetched from anywhere."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from typing import Any

from trellis.skeleton import Skeletons
from trellis.skeleton.readers.text import shown
from trellis.skeleton.view import branches, placed, turn_of

VIEWS = {"front": (0, 0), "side": (90, 0), "top": (0, 90)}  # turned by, and tilted by, degrees
GRID = 1000  # positions are whole numbers from -GRID to GRID: a third of the size, as good to see


def page(
    data: Skeletons, number: int, *, view: str = "front", up: str | None = None, fps: float = 30
) -> str:
    """The page for ``data.sequences[number]``."""
    turn = turn_of(data.layout, up)
    name, label = shown(data.names[number]), shown(data.classes[data.labels[number]])
    frames = len(data.sequences[number])
    about = f"{shown(data.source)} · {name} · {frames:,} frames"
    if data.synthetic:
        about += " · synthetic"
    content = {
        "frames": placed(data.sequences[number], turn, GRID).tolist(),
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


def _inside_script(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
