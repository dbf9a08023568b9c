"""Write a model as a folder of C: ``model.h``, ``model.c``, ``main.c``, a stream and a README."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ...files import check_writable, replacing
from ..exporters import register_exporter
from ..format.encoding import to_bytes
from ..prepare import made, prepared
from ..recording import Recording, cosine_table, follows, waves, work
from ..stream import UNITS, Streaming
from ..tables.form import Loop, Tables
from ..tables.int8 import Int8Loss
from .arrays import gaps, number, packaged
from .int8_text import int8_flash
from .source_text import LICENCE, arithmetic, header, program, ram, scratch, source

# The text of ``stream.h``, ``stream.c`` and ``stream_main.c``: gestures in a stream of frames.


_STREAM_FILES = ("stream.h", "stream.c", "stream_main.c")


def settings_of(tables: Tables) -> Streaming | None:
    """Return the settings of a stream that a model has, if it names what happens in recordings."""
    recording = tables.notes.get("recording") or {}
    if "stream" not in recording or not tables.notes.get("classes"):
        return None
    return Streaming.from_notes(recording["stream"])


def stream_files(tables: Tables, settings: Streaming) -> dict[str, str]:
    """Return the three files by name."""
    body = packaged("stream.c").replace("@WINDOWS@", ", ".join(map(str, settings.windows)))
    whole = packaged("recording_main.c")
    shared = whole[whole.index("static const char *why") : whole.index("static int add(")]
    parts = packaged("frame.h") + "\n" + packaged("lines.h")
    main = packaged("stream_main.c").replace("@COLUMNS@", shared).replace("@INCLUDES@", parts)
    head = packaged("stream.h").replace("@SETTINGS@", _settings(tables, settings))
    return dict(zip(_STREAM_FILES, (head, body, LICENCE + main), strict=True))


def _settings(tables: Tables, settings: Streaming) -> str:
    recording = tables.notes["recording"]
    scale, longest = np.float32(recording["scale"]), settings.windows[-1]
    farthest = np.float32((2**31 - 1) // -(-longest // recording["chunks"]) - 256)
    nothing = -1 if settings.nothing is None else settings.nothing
    told = {
        "WINDOWS": (len(settings.windows), "lengths of windows"),
        "RING": (f"{longest + 1}u", "the longest window, and one"),
        "NOTHING": (nothing, "the class that is no gesture, or -1"),
        "THRESHOLD": (number(settings.threshold), "the probability at which a gesture starts"),
        "RELEASE": (number(settings.release), "below it, it ends"),
        "HOLD": (settings.hold, "evaluations in a row that decide"),
        "EVERY": (f"{settings.every}u", "frames from one evaluation to the next"),
        "LAG": (f"{settings.lag}u", "frames from the centre of the windows to the last"),
        "APART": (f"{settings.apart}u", "frames after an event without another of its class"),
        "GAP": (f"{settings.gap}u", "frames without a skeleton that are bridged"),
        "UNIT": (number(float(scale / np.float32(UNITS))), "of the sums, in coordinates"),
        "FINER": (number(float(np.float32(UNITS) / scale)), "units in a coordinate of 1"),
        "FARTHEST": (number(float(farthest)), "units that a coordinate may have"),
    }
    return "".join(
        f"#define TRELLIS_{name} {value} /* {about} */\n" for name, (value, about) in told.items()
    )


def stream_readme(settings: Streaming) -> list[str]:
    """Return the section of the README on streams."""
    windows = ", ".join(map(str, settings.windows))
    return [
        "",
        "## Gestures in a stream",
        "",
        f"`stream.h` and `stream.c` find gestures while frames come, in windows of {windows}",
        "frames. There is one event for each gesture, with its start and its end. Nothing is",
        "allocated.",
        "",
        "```sh",
        "cc -std=c99 -O2 -o stream model.c stream.c stream_main.c -lm",
        "./stream < recording.csv     # a line a gesture: class, first and last frame, probability",
        "```",
        "",
        "```c",
        '#include "stream.h"',
        "",
        "static trellis_stream stream;",
        "trellis_event event;",
        "",
        "trellis_stream_begin(&stream);",
        "/* for each frame; NULL where no skeleton was found */",
        "if (trellis_stream_push(&stream, frame, &event) > 0)",
        "    puts(trellis_classes[event.label]);",
        "```",
        "",
        "`sizeof(trellis_stream)` is all the memory. `stream_main.c` takes a frame of zeros for",
        "one without a skeleton.",
    ]


# The README beside exported C.


_FLAGS = "-std=c99 -O2"


def readme(tables: Tables) -> str:
    """Return the README: what the files are, how to build and how to call them."""
    recognises = tables.notes.get("recording") and tables.notes.get("classes")
    sizes = (
        f"{tables.weights:,} weights ({tables.values}), {tables.units:,} units, "
        f"{tables.uses:,} multiplications an inference"
    )
    return "\n".join(
        [
            "# A pruned network in C",
            "",
            f"{sizes}.",
            "",
            "| file | what it is |",
            "|---|---|",
            "| `model.h` | sizes, and the functions to call |",
            "| `model.c` | tables and kernel: C99, no allocation, everything `const` |",
            f"| `main.c` | {_main(bool(recognises))} |",
            '| `model.trellis` | the same tables for Python: `trellis.Runtime("model.trellis")` |',
            "",
            "## Build and run",
            "",
            "```sh",
            f"cc {_FLAGS} -o model model.c main.c -lm",
            _use(tables, bool(recognises)),
            "```",
            "",
            "## Call it",
            "",
            "```c",
            '#include "model.h"',
            "",
            "static float scratch[TRELLIS_SCRATCH], output[TRELLIS_OUTPUTS];",
            "",
            *(_call_recording() if recognises else _call_plain()),
            "```",
            "",
            f"Memory: {4 * scratch(tables):,} bytes of scratch, which the caller gives. On a",
            "microcontroller the tables stay in flash; `-ffunction-sections -Wl,--gc-sections`",
            "leaves out what is not called.",
            "",
            *_maths(tables, bool(recognises)),
            "",
            "`trellis_run` returns -1, and computes nothing, for an input that holds a NaN or an",
            "infinity.",
            *(_recorded(tables.notes["recording"]) if tables.notes.get("recording") else ()),
            *(stream_readme(settings) if (settings := settings_of(tables)) else ()),
            "",
            "These files were written by Trellis and may be used under any licence.",
            "",
        ]
    )


def _main(recognises: bool) -> str:
    if recognises:
        return "names the action in a recording from standard input"
    return "reads inputs from standard input, one a line, and prints the outputs"


def _use(tables: Tables, recognises: bool) -> str:
    if not recognises:
        return f"./model < inputs.csv      # {tables.input_units} numbers a line"
    joints = len(tables.notes["recording"]["joints"])
    return "\n".join(
        [
            f"./model < recording.csv              # a frame a line: x y z of {joints} joints",
            "./model --outputs < recording.csv    # the network's output for every class",
        ]
    )


def _maths(tables: Tables, recognises: bool) -> list[str]:
    """Say whether the maths library (-lm) is needed, and for what."""
    needs = [] if arithmetic(tables) else ["activations"]
    recording = tables.notes.get("recording") or {}
    if recording.get("body") or recording.get("bones"):
        needs.append("the square roots of `trellis_input`")
    if needs:
        return [f"`model.c` needs the maths library (`-lm`), for {' and '.join(needs)}."]
    if recognises:
        return [
            "`model.c` does not need the maths library (`-lm`); `main.c` does, for percentages."
        ]
    return ["Nothing here needs the maths library: `-lm` may be left out."]


def _recorded(recording: dict[str, Any]) -> list[str]:
    lines = [
        "",
        f"`trellis_input` averages a recording over {recording['chunks']} chunks, centres it and",
        "divides it by one number. It does so in single precision, and carries along what its sums",
        "lose by rounding: compile without `-ffast-math` (and Intel's compiler with",
        "`-fp-model=precise`), which would take that for zero.",
    ]
    if follows(recording):
        roots = ", ".join(_joint(recording["joints"][joint]) for joint in recording["roots"])
        lines.append(f"Every chunk is centred by itself, on the mean position of {roots}.")
    if body := recording.get("body"):
        bottom, top, left, right = (_joint(recording["joints"][joint]) for joint in body)
        lines += [
            "Then it turns the recording as a whole into the body's frame, so that it does not",
            f"matter where the camera stood: y points from {bottom} up to {top}, x across from",
            f"{left} to {right}, as they are on average.",
        ]
    if bones := recording.get("bones"):
        lines += [
            f"It is then brought to the size in which its {len(bones)} bones are "
            f"{recording['length'] / recording['scale']:.4g} long on average,",
            "so that it matters neither who moves nor, where places are a picture's, how far away.",
        ]
    if waves(recording):
        lines += [
            "The network reads waves rather than moments: of each joint's x, y and z, the",
            "coefficients of the orthonormal cosine transform (DCT-II) over the chunks, slowest",
            f"first. The transform takes {work(recording):,} bytes of stack.",
        ]
    return lines


def _joint(name: str) -> str:
    """Return a joint's name as Markdown code."""
    words = " ".join(name.split())
    return f"`` {words} ``" if "`" in words else f"`{words}`"


def _call_recording() -> list[str]:
    return [
        "trellis_input(recording, frames, scratch);   /* what the network reads of a recording */",
        "trellis_run(scratch, output, scratch);       /* output[i] is of trellis_classes[i] */",
    ]


def _call_plain() -> list[str]:
    return ["trellis_run(input, output, scratch);         /* TRELLIS_INPUTS floats in */"]


FILES = ("model.h", "model.c", "main.c", "README.md", "model.trellis")


@dataclass(frozen=True)
class CExport:
    """What `export_c` wrote, and how large it is on a device; prints as one line.

    Attributes:
        folder: Where the files are.
        weights: Weights that are stored.
        units: Units that are computed.
        uses: Multiplications per inference.
        file: Bytes of ``model.trellis``.
        flash: Bytes of the tables in C.
        ram: Bytes of scratch memory and outputs, at their peak.
        choices: For each layer over planes, whether it is a loop or a table, and the bytes of
            either.
        loss: How far outputs in int8 arithmetic are from those in fp32, or None.
    """

    folder: Path
    weights: int
    units: int
    uses: int
    file: int
    flash: int
    ram: int
    choices: tuple[Any, ...] = ()
    loss: Int8Loss | None = None

    def __str__(self) -> str:
        told = (
            f"{self.folder}: {self.weights:,} weights, {self.units:,} units, "
            f"{self.uses:,} multiplications; model.trellis {self.file:,} bytes; in C, tables of "
            f"{self.flash:,} bytes and at most {self.ram:,} bytes of memory"
        )
        lost = [] if self.loss is None else [str(self.loss)]
        return "\n".join([told, *lost, *(f"  {choice}" for choice in self.choices)])


def write_c(tables: Tables, folder: str | os.PathLike[str]) -> CExport:
    """Write tables as C. The folder is created if needed; its other files are left alone."""
    texts = (header(tables), source(tables), program(tables), readme(tables))
    contents = [*(text.encode() for text in texts), to_bytes(tables)]
    settings = settings_of(tables)
    more = {} if settings is None else stream_files(tables, settings)
    contents[-1:-1] = [text.encode() for text in more.values()]
    with made(folder, "C") as path:
        paths = [path / name for name in (*FILES[:-1], *more, FILES[-1])]
        for target in paths:
            check_writable(target)
        with replacing(*paths) as drafts:
            for draft, content in zip(drafts, contents, strict=True):
                draft.write_bytes(content)
    return CExport(
        path, tables.weights, tables.units, tables.uses, len(contents[-1]), flash(tables),
        ram(tables), tables.choices, tables.loss,
    )  # fmt: skip


def flash(tables: Tables) -> int:
    """Return the bytes of const tables in the C that `write_c` writes."""
    index = 2 if tables.size <= 0xFFFF else 4
    value = {"fp32": 4, "fp16": 2, "int8": 1}[tables.values]
    total = index * len(tables.results) if tables.int8 is None else int8_flash(tables, tables.int8)
    for step in tables.steps if tables.int8 is None else ():
        if isinstance(step, Loop):
            total += 16 + index * (19 + len(step.fan) + len(step.sources) + len(step.extras))
            total += len(gaps(step)) + value * len(step.weights)
            biased, scaled = bool(np.any(step.bias)), bool(np.any(step.scale != 1))
            total += 4 * step.shape[0] * (biased + scaled)
            continue
        total += 20 + index * (3 * len(step.bands) + len(step.terms) + len(step.others))
        total += index * 2 * len(step.outs) + value * len(step.weights)
        total += 4 * len(step.fan) * (bool(np.any(step.bias)) + bool(np.any(step.scale != 1)))
    recording = tables.notes.get("recording")
    if recording and waves(recording):
        total += 4 * len(cosine_table(recording["chunks"]))
    return total


@register_exporter("c")
def export_c(
    model: nn.Module | Tables, example_inputs: Any, folder: str | os.PathLike[str], *,
    values: str = "fp32", data: Any = None, classes: Sequence[str] | None = None,
    recording: Recording | None = None, arithmetic: str = "fp32", calibration: Any = None,
) -> CExport:  # fmt: skip
    """Write a model as C99: no allocation, no dependency, tables that stay in flash.

    The folder gets ``model.h``, ``model.c``, ``main.c``, a README and ``model.trellis``, which is
    for `trellis.Runtime`. Files of these names are replaced.

    Args:
        model: The model: masked, baked or compacted.
        example_inputs: Example inputs, as for `trellis.audit`.
        folder: Where to write; created if needed.
        values: How weights are stored: ``"fp32"``, ``"fp16"`` or ``"int8"``, which has one scale
            per row.
        data: Inputs such as the network will see, (samples, …), to calibrate int8 on.
        classes: Names of the outputs. With ``recording``, ``main.c`` prints the class of a
            recording.
        recording: What the network expects of a recording of joints.
        arithmetic: ``"fp32"``, or ``"int8"``: activations are bytes too, sums are integers, and
            memory is a quarter. All targets then agree to the bit.
        calibration: Inputs such as the network will see, for int8 arithmetic: an array (samples, …)
            or batches, of which the first may be followed by targets.

    Returns:
        What was written, and its sizes.

    Raises:
        TrellisError: If the model holds an operation that sparse tables or int8 arithmetic do not
            have, or a number that is not finite; or if the files cannot be written.

    >>> import tempfile, torch
    >>> layer = nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = export_c(layer, torch.zeros(1, 3), folder)
    ...     found.weights, sorted(os.listdir(folder))
    (6, ['README.md', 'main.c', 'model.c', 'model.h', 'model.trellis'])
    """
    found = prepared(
        model, example_inputs, values=values, data=data, classes=classes, recording=recording,
        arithmetic=arithmetic, calibration=calibration,
    )  # fmt: skip
    return write_c(found, folder)
