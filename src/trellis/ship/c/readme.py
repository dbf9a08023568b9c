"""The README beside exported C."""

from __future__ import annotations

from typing import Any

from ..recording import waves, work
from ..tables.form import Tables
from .model import arithmetic

_FLAGS = "-std=c99 -O2"


def readme(tables: Tables) -> str:
    """What the files are, how to build them, how to call them."""
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
            f"Memory: {4 * tables.size:,} bytes of scratch, which the caller gives. On a",
            "microcontroller the tables stay in flash; `-ffunction-sections -Wl,--gc-sections`",
            "leaves out what is not called.",
            "",
            *_maths(tables, bool(recognises)),
            "",
            "`trellis_run` returns -1, and computes nothing, for an input that holds a NaN or an",
            "infinity.",
            *(_recorded(tables.notes["recording"]) if tables.notes.get("recording") else ()),
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
    """Who needs -lm, and what for."""
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
    """As code, whatever it is called."""
    words = " ".join(name.split())
    return f"`` {words} ``" if "`" in words else f"`{words}`"


def _call_recording() -> list[str]:
    return [
        "trellis_input(recording, frames, scratch);   /* what the network reads of a recording */",
        "trellis_run(scratch, output, scratch);       /* output[i] is of trellis_classes[i] */",
    ]


def _call_plain() -> list[str]:
    return ["trellis_run(input, output, scratch);         /* TRELLIS_INPUTS floats in */"]
