"""Write a model as WebAssembly: build the module, write the page and the files beside it."""

from __future__ import annotations

import base64
import functools
import html
import os
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ...errors import TrellisError
from ...files import check_writable, replacing
from ...pages import inside_script, policy_hash, writable
from ..c.source_text import header, source
from ..c.write import settings_of, stream_files
from ..exporters import register_exporter
from ..native_library import Compiler, program, zig
from ..prepare import made, prepared
from ..recording import Recording, work
from ..tables.form import Tables

# Build C to WebAssembly, with the compiler of the ``ziglang`` package or with clang.


# Square roots are one instruction: without errno, the maths library is not called. Loop strength
# reduction turns `terms[1]` into a sum that might wrap, which costs an instruction each time;
# without it, it is a load at a fixed offset, which costs nothing.
_COMPILED = (
    "-std=c99", "-O3", "-msimd128", "-mbulk-memory", "-fno-math-errno", "-mllvm", "-disable-lsr",
)  # fmt: skip
_STACK = 16384  # bytes, without the work space of the cosine transform


@dataclass(frozen=True)
class Toolchain:
    """A compiler for wasm32-wasi, and a linker that needs no C library."""

    cc: Compiler
    linker: Compiler


@functools.cache
def toolchain() -> Toolchain:
    """Return ``ziglang`` if installed, else clang with wasm-ld and the headers of wasi-libc."""
    if path := zig():
        cc = Compiler((path, "cc", "-target", "wasm32-wasi"), "ziglang")
        return Toolchain(cc, Compiler((path, "wasm-ld"), "ziglang"))
    clang, linker = program("clang"), program("wasm-ld")
    if clang and linker:
        cc = Compiler((clang, "--target=wasm32-wasi", "--sysroot=/usr"), "clang")
        return Toolchain(cc, Compiler((linker,), "wasm-ld"))
    raise TrellisError(
        "no compiler found for WebAssembly; run `pip install ziglang`, which includes one "
        "(or install clang, lld and wasi-libc)"
    )


def built(tables: Tables) -> bytes:
    """Return the bytes of ``model.wasm``: the ``model.c`` of `write_c`, and what a page calls.

    It imports nothing. If an activation needs the maths library, ``ziglang`` first builds its C
    library for WebAssembly, once, which may take a minute.
    """
    tools = toolchain()
    texts = {
        "model.h": header(tables),
        "model.c": source(tables),
        "exports.c": packaged("exports.c"),
    }
    if settings := settings_of(tables):
        texts |= stream_files(tables, settings)
        del texts["stream_main.c"]
        texts["stream_exports.c"] = packaged("stream_exports.c")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            return _compiled(tools, texts, _stack(tables), Path(scratch))
    except OSError as error:
        raise TrellisError(
            f"cannot build WebAssembly in {tempfile.gettempdir()!r}: {error.strerror or error}"
        ) from error


def _stack(tables: Tables) -> str:
    """Return the linker's option; a stack that is too small would overwrite the tables."""
    size = _STACK + work(tables.notes.get("recording") or {})
    return f"stack-size={size + -size % 16}"


def _compiled(tools: Toolchain, texts: dict[str, str], stack: str, folder: Path) -> bytes:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    objects = []
    for name in (name[:-2] for name in texts if name.endswith(".c")):
        objects.append(str(folder / f"{name}.o"))
        tools.cc.run([*_COMPILED, "-c", "-o", objects[-1], str(folder / f"{name}.c")])
    target = folder / "model.wasm"
    if "#define TRELLIS_NO_MATH" in texts["model.c"]:
        options = ["--no-entry", "--strip-all", "-z", stack]
        tools.linker.run([*options, "-o", str(target), *objects])
    else:
        options = ["-O3", "-mexec-model=reactor", "-Wl,--strip-all", f"-Wl,-z,{stack}"]
        tools.cc.run([*options, "-o", str(target), *objects, "-lm"])
    return target.read_bytes()


def packaged(name: str) -> str:
    """Return the text of a packaged source file."""
    return files("trellis.deploy.wasm").joinpath("source", name).read_text(encoding="utf-8")


# One HTML file that runs the network in the browser; it holds wasm, recordings and program.
#
# Names and recordings are JSON in a data block that cannot be closed early, and the program shows
# them as text only. A content security policy allows only that program, by its hash, and no network
# access.


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
    title: str = "A pruned network in the browser", arithmetic: str = "fp32",
    calibration: Any = None,
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
        arithmetic: ``"fp32"`` or ``"int8"``, as for `export_c`.
        calibration: Inputs for int8 arithmetic, as for `export_c`.

    Returns:
        What was written, and its sizes.

    Raises:
        TrellisError: If no compiler is found, if sparse tables do not have an operation of the
            model, or if the scene does not fit the model.
    """
    found = prepared(
        model, example_inputs, values=values, data=data, classes=classes, recording=recording,
        arithmetic=arithmetic, calibration=calibration,
    )  # fmt: skip
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
