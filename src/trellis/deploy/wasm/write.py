"""Write a model as WebAssembly: ``model.wasm``, ``model.mjs``, a README and a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ...errors import TrellisError
from ...files import check_writable, replacing
from ..c.stream_text import settings_of
from ..exporters import register_exporter
from ..prepare import made, prepared
from ..recording import Recording
from ..tables.form import Tables
from .build import built, packaged, toolchain
from .page import Scene, page

# The README beside exported WebAssembly.


_PAGE = "| `index.html` | all of it in one page that needs nothing else: open it from disk |"
_RECORDED = """\

A recording may have any length; the same C makes of it what the network reads:

```js
const output = network.recorded(places, frames);  // x y z of each joint, frame after frame
network.shares(output);                           // how likely each class is
```
"""


_STREAM = """\

Gestures in a stream of frames, with one event for each:

```js
import {openStream} from "./model.mjs";

const stream = openStream(network);
const event = stream.push(frame);  // {label, start, end, probability}, or null
```
"""


def readme(tables: Tables, size: int, page: bool) -> str:
    """Return the README: what the files are, and how to call them."""
    lines = [
        "# A pruned network in WebAssembly",
        "",
        f"{tables.weights:,} weights ({tables.values}), {tables.uses:,} multiplications an "
        f"inference; `model.wasm` is {size:,} bytes, needs 128-bit SIMD, and imports nothing.",
        "",
        "| file | what it is |",
        "|---|---|",
        "| `model.wasm` | tables and kernel, built from the same C as `trellis export c` writes |",
        "| `model.mjs` | loads it, in a browser or in node |",
        *([_PAGE] if page else []),
        "",
        "```js",
        'import {openNetwork} from "./model.mjs";',
        "",
        'const network = await openNetwork(await (await fetch("model.wasm")).arrayBuffer());',
        f"network.run(new Float32Array({tables.input_units}));"
        f"  // a Float32Array of {tables.output_units} outputs",
        "```",
    ]
    lines += ["", "A number that is not finite is a `RangeError`."]
    if tables.notes.get("recording"):
        lines.append(_RECORDED.rstrip())
    if settings_of(tables):
        lines.append(_STREAM.rstrip())
    return "\n".join([*lines, "", "These files may be used under any licence.", ""])


@dataclass(frozen=True)
class WasmExport:
    """What `export_wasm` wrote; prints as one line.

    Attributes:
        folder: Where the files are.
        weights: Weights that are stored.
        uses: Multiplications per inference.
        wasm: Bytes of ``model.wasm``.
        page: Bytes of ``index.html`` without recordings, or None without a page.
        recordings: Bytes of the recordings in the page.
        clips: Number of recordings in the page.
    """

    folder: Path
    weights: int
    uses: int
    wasm: int
    page: int | None
    recordings: int
    clips: int = 0

    def __str__(self) -> str:
        told = (
            f"{self.folder}: {self.weights:,} weights, {self.uses:,} multiplications; "
            f"model.wasm {self.wasm:,} bytes"
        )
        if self.page is None:
            return told
        return (
            f"{told}; index.html {self.page:,} bytes with it, and {self.recordings:,} for "
            f"{self.clips} recording{'' if self.clips == 1 else 's'} to show"
        )


def module_text(tables: Tables) -> str:
    """Return ``model.mjs``."""
    if settings_of(tables) is None:
        return packaged("model.js") + "\nexport {openNetwork};\n"
    return packaged("model.js") + packaged("stream.js") + "\nexport {openNetwork, openStream};\n"


def write_wasm(
    tables: Tables, folder: str | os.PathLike[str], scene: Scene | None = None, title: str = ""
) -> WasmExport:
    """Build tables to WebAssembly. The folder is created if needed; other files are left alone."""
    if scene is not None:
        _check(tables, scene)
    toolchain()  # before anything is made
    module = module_text(tables)
    recordings = 0
    with made(folder, "WebAssembly") as path:
        wasm = built(tables)
        contents = {
            "model.wasm": wasm,
            "model.mjs": module.encode(),
            "README.md": readme(tables, len(wasm), scene is not None).encode(),
        }
        if scene is not None:
            contents["index.html"] = page(tables, wasm, scene, title).encode()
            recordings = sum(len(clip["data"]) for clip in scene.packed()["clips"])
        paths = [path / name for name in contents]
        for target in paths:
            check_writable(target)
        with replacing(*paths) as drafts:
            for draft, content in zip(drafts, contents.values(), strict=True):
                draft.write_bytes(content)
    return WasmExport(
        path, tables.weights, tables.uses, len(wasm),
        len(contents["index.html"]) - recordings if scene is not None else None,
        recordings, len(scene.clips) if scene is not None else 0,
    )  # fmt: skip


@register_exporter("wasm")
def export_wasm(
    model: nn.Module | Tables, example_inputs: Any, folder: str | os.PathLike[str], *,
    values: str = "fp32", data: Any = None, classes: Sequence[str] | None = None,
    recording: Recording | None = None, scene: Scene | None = None,
    title: str = "A pruned network in the browser",
) -> WasmExport:  # fmt: skip
    """Write a model as WebAssembly, with a module that loads it and, optionally, a page.

    It is the C of `trellis.export_c`, built with SIMD by the ``ziglang`` package or clang.

    Args:
        model: The model, as for `export_c`.
        example_inputs: Example inputs, as for `trellis.audit`.
        folder: Where to write; created if needed.
        values: How weights are stored, as for `export_c`.
        data: Inputs to calibrate int8 on, as for `export_c`.
        classes: Names of the outputs, as for `export_c`.
        recording: What the network expects of a recording, as for `export_c`.
        scene: Recordings for ``index.html``, which draws them and names what happens in them. The
            page works from disk and fetches nothing. Needs ``classes`` and ``recording``.
        title: Title of the page.

    Returns:
        What was written, and its sizes.

    Raises:
        TrellisError: If no compiler is found, if sparse tables do not have an operation of the
            model, or if the scene does not fit the model.
    """
    found = prepared(
        model, example_inputs, values=values, data=data, classes=classes, recording=recording
    )
    return write_wasm(found, folder, scene, title)


def _check(tables: Tables, scene: Scene) -> None:
    if not (tables.notes.get("classes") and tables.notes.get("recording")):
        raise TrellisError("a scene needs a model with classes and a recording; give both")
    joints = len(tables.notes["recording"]["joints"])
    if not scene.clips:
        raise TrellisError("the scene has no clips; give at least one recording to show")
    for clip in scene.clips:
        if clip.frames.ndim != 3 or clip.frames.shape[1:] != (joints, 3) or not len(clip.frames):
            raise TrellisError(
                f"clip {clip.name!r}: expected the shape (frames, {joints}, 3), got "
                f"{clip.frames.shape}"
            )
    places = {joint for bone in scene.bones for joint in bone}
    if len(scene.branches) != joints or not places <= set(range(joints)):
        raise TrellisError(f"the scene's bones and branches do not fit {joints} joints")
