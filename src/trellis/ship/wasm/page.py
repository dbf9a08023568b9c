"""One HTML file that runs the network in the browser: wasm, recordings and program within it.

Names and recordings are JSON in a data block that no parser can leave early, and the program shows
them as text alone. A content security policy lets nothing run but that program, by its hash, and
nothing be fetched from anywhere.
"""

from __future__ import annotations

import base64
import html
import zlib

from ...pages import inside_script, policy_hash, writable
from ..tables.form import Tables
from .build import packaged
from .scene import Scene


def page(tables: Tables, wasm: bytes, scene: Scene, title: str) -> str:
    """The page of a model that names the action in a recording."""
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
    pieces = []  # in one pass: what is put in is never looked through for more places
    for place, part in parts.items():
        before, text = text.split(place)
        pieces += [before, part]
    return writable("".join([*pieces, text]))
