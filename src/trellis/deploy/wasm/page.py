"""One HTML file that runs the network in the browser; it holds wasm, recordings and program.

Names and recordings are JSON in a data block that cannot be closed early, and the program shows
them as text only. A content security policy allows only that program, by its hash, and no network
access.
"""

from __future__ import annotations

import base64
import html
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...pages import inside_script, policy_hash, writable
from ..tables.form import Tables
from .build import packaged

# The recordings that a page shows, and how they are drawn.


LEVELS = 32767  # positions are 16-bit numbers, which halves the size and changes nothing visible


@dataclass(frozen=True, eq=False)
class Clip:
    """A recording: ``frames`` of shape (frames, joints, 3), and its class if known."""

    name: str
    frames: NDArray[np.float32]
    label: str | None = None

    def packed(self) -> dict[str, Any]:
        """Return what the page stores.

        >>> Clip("still", np.zeros((2, 1, 3), np.float32)).packed()["data"]
        'AAAAAAAAAAAAAAAA'
        """
        centre, step, levels = self._levels()
        return {
            "name": self.name, "label": self.label, "frames": len(self.frames),
            "centre": centre.tolist(), "step": step,
            "data": base64.b64encode(levels.astype("<i2").tobytes()).decode("ascii"),
        }  # fmt: skip

    def shown(self) -> NDArray[np.float32]:
        """Return the positions after rounding to 16 bits, as the page shows them."""
        centre, step, levels = self._levels()
        return (centre + step * levels).astype(np.float32)

    def _levels(self) -> tuple[NDArray[np.float64], float, NDArray[np.int64]]:
        places = self.frames.astype(np.float64)
        flat = places.reshape(-1, 3)
        centre = (flat.min(axis=0) + flat.max(axis=0)) / 2
        step = float(np.abs(flat - centre).max() / LEVELS) or 1.0
        return centre, step, np.rint((places - centre) / step).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Scene:
    """What a page shows: clips to choose from, and how to draw them.

    Attributes:
        clips: The recordings.
        bones: Pairs of joints.
        branches: A number per joint; joints of the same number have the same colour.
        turn: Matrix from a recording's axes to right, up, towards the viewer.
        fps: Frames per second.
        source: Where the clips are from, in words.
    """

    clips: Sequence[Clip]
    bones: Sequence[tuple[int, int]]
    branches: Sequence[int]
    turn: Sequence[Sequence[float]] = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    fps: float = 30.0
    source: str = ""

    def packed(self) -> dict[str, Any]:
        return {
            "clips": [clip.packed() for clip in self.clips],
            "bones": [list(bone) for bone in self.bones],
            "branches": list(self.branches),
            "turn": [list(map(float, row)) for row in self.turn],
            "fps": self.fps,
            "source": self.source,
        }


def page(tables: Tables, wasm: bytes, scene: Scene, title: str) -> str:
    """Return the page of a model that names the action in a recording."""
    program = packaged("model.js") + packaged("page.js")
    style = packaged("page.css")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src 'wasm-unsafe-eval' {policy_hash(program)}",
            f"style-src {policy_hash(style)}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    content = {
        "title": title,
        "classes": tables.notes["classes"],
        "joints": tables.notes["recording"]["joints"],
        "weights": tables.weights,
        "values": tables.values,
        "multiplications": tables.uses,
        "scene": scene.packed(),
        "bytes": len(wasm),
    }
    parts = {
        "@POLICY@": html.escape(policy, quote=True),
        "@TITLE@": html.escape(title),
        "@STYLE@": style,
        "@CONTENT@": inside_script(content),
        "@WASM@": base64.b64encode(zlib.compress(wasm, 9)).decode("ascii"),
        "@PROGRAM@": program,
    }
    text = packaged("page.html")
    pieces = []  # one pass: inserted text is not searched again
    for place, part in parts.items():
        before, text = text.split(place)
        pieces += [before, part]
    return writable("".join([*pieces, text]))
