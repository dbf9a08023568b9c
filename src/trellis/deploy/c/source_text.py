"""The text of ``model.h``, ``model.c`` and ``main.c``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..recording import bone_length, cosine_table, divisor, follows, waves
from ..tables.form import Loop, Step, Tables
from .arrays import (
    arrays_of_tables,
    float_array,
    gaps,
    index_array,
    joined,
    kernel,
    loop_entry,
    number,
    packaged,
    string,
    tabled,
)
from .int8_text import int8_parts, scratch_bytes

LICENCE = """\
/* Written by Trellis from a pruned network. This file may be used under any licence, or none:
 * the maker of the model decides.
 */
"""
_ARITHMETIC = ("none", "relu", "clamp", "leaky", "hardswish", "hardsigmoid", "reciprocal", "abs")


def arithmetic(tables: Tables) -> bool:
    """Whether no activation needs the maths library."""
    return tables.int8 is not None or all(step.act.name in _ARITHMETIC for step in tables.steps)


SLACK = 8  # TRELLIS_SLACK in loops.h: numbers behind memory that a vector may read


def scratch(tables: Tables) -> int:
    """The numbers of memory that exported C needs: units and, for loops, the taps of a channel."""
    if tables.int8 is not None:
        return -(-scratch_bytes(tables)[0] // 4)
    if not tables.loops:
        return tables.size
    return tables.size + SLACK + 2 * max(int(loop.fan.max(initial=0)) for loop in tables.loops)


def ram(tables: Tables) -> int:
    """The bytes of scratch memory and outputs."""
    return 4 * (scratch(tables) + tables.output_units)


def header(tables: Tables) -> str:
    """``model.h``: sizes, and what may be called."""
    recording = tables.notes.get("recording")
    classes = tables.notes.get("classes")
    lines = [
        LICENCE,
        "#ifndef TRELLIS_MODEL_H",
        "#define TRELLIS_MODEL_H",
        "",
        "#include <stddef.h>",
        "",
        f"#define TRELLIS_INPUTS {tables.input_units} /* {_shapes(tables.inputs)} */",
        f"#define TRELLIS_OUTPUTS {tables.output_units} /* {_shapes(tables.outputs)} */",
        f"#define TRELLIS_SCRATCH {scratch(tables)} /* floats of memory that trellis_run needs */",
        f"#define TRELLIS_RAM {ram(tables)} /* bytes of it and of the outputs: the peak */",
        f"#define TRELLIS_WEIGHTS {tables.weights}",
        f"#define TRELLIS_MULTIPLICATIONS {tables.uses}",
        f"#define TRELLIS_VALUES {string(tables.values)}",
        "",
        "/* The outputs for one input. Nothing is allocated, nothing is kept: calls with scratch",
        " * memory of their own may run at once. An input that already lies at the beginning of",
        " * scratch (input == scratch) is not copied. Returns 0; or -1, and computes nothing, for",
        " * a null pointer or an input that holds a NaN or an infinity. */",
        "int trellis_run(const float *input, float *output, float *scratch);",
        "",
    ]
    if classes:
        lines += [
            f"#define TRELLIS_CLASSES {len(classes)}",
            "extern const char *const trellis_classes[TRELLIS_CLASSES];",
            "",
        ]
    if recording:
        lines += [
            f"#define TRELLIS_JOINTS {len(recording['joints'])}",
            f"#define TRELLIS_CHUNKS {recording['chunks']}",
            "#define TRELLIS_FRAME (TRELLIS_JOINTS * 3) /* numbers: x y z of each joint */",
            "extern const char *const trellis_joints[TRELLIS_JOINTS];",
            "",
            "/* A recording, frames of TRELLIS_FRAME numbers one after another, as the network's",
            f" * input: {_made(recording)}.",
            " * Returns 0, or -1 for a null pointer or no frame. A NaN or an infinity among the",
            " * numbers is one in the input too, and trellis_run refuses it. */",
            "int trellis_input(const float *recording, size_t frames, float *input);",
            "",
        ]
    return "\n".join([*lines, "#endif", ""])


def source(tables: Tables) -> str:
    """``model.c``: the tables, the kernel, and `trellis_run`."""
    head = [LICENCE, '#include "model.h"', "", "#include <stddef.h>", "#include <string.h>", ""]
    if tables.int8 is not None:
        parts = ["\n".join(head), *int8_parts(tables, tables.int8)]
    else:
        parts = _float_parts(tables, head)
    if tables.notes.get("classes"):
        parts.append(_names("trellis_classes", "TRELLIS_CLASSES", tables.notes["classes"]))
    if tables.notes.get("recording"):
        parts.append(_recording(tables.notes["recording"]))
    return "\n".join(parts)


def _float_parts(tables: Tables, head: list[str]) -> list[str]:
    """Return the parts of ``model.c`` from its beginning to `trellis_run`, in single precision."""
    index = "uint16_t" if tables.size <= 0xFFFF else "uint32_t"
    value = {"fp32": "float", "fp16": "uint16_t", "int8": "int8_t"}[tables.values]
    weight = {"fp32": "(w)", "fp16": "trellis_half(w)", "int8": "(float)(w)"}[tables.values]
    if arithmetic(tables):
        head.append("#define TRELLIS_NO_MATH")
    head += [
        f"#define TRELLIS_INDEX {index}",
        f"#define TRELLIS_VALUE {value}",
        f"#define TRELLIS_WEIGHT(w) {weight}",
        "",
    ]
    names = ["tables.h", "activation.h"]
    if tables.values == "fp16":
        names.append("half.h")
    if tables.loops:
        names.append("loops.h")
    if tabled(tables):
        names += ["real.h", "fours.h", "sums.h", "kernel.h"]
    parts = ["\n".join(head), *kernel(tables, *names, "finite.h")]
    if tables.loops:
        parts.append(_loop_arrays(tables, index, value))
    if tabled(tables):
        parts.append(_arrays(tables, index, value))
    else:
        parts += [index_array("table_results", index, tables.results), ""]
    return [*parts, _run(tables)]


def program(tables: Tables) -> str:
    """``main.c``: names the action in a recording, or computes a line of outputs for each input."""
    recognises = tables.notes.get("recording") and tables.notes.get("classes")
    text = packaged("recording_main.c" if recognises else "rows_main.c")
    parts = packaged("frame.h") + "\n" + packaged("lines.h")
    if not recognises:  # what names of columns are for
        begin, end = parts.index("/* How many cells"), parts.index("/* One frame from a line")
        parts = parts[:begin] + parts[end:]
    return LICENCE + text.replace("@INCLUDES@", parts)


def _loop_arrays(tables: Tables, index: str, value: str) -> str:
    loops = tables.loops
    weights = joined([loop.weights for loop in loops])
    if tables.values == "fp16":
        weights = weights.astype(np.float16).view(np.uint16)
    extras = [np.maximum(loop.extras, 0) for loop in loops]
    bias = [loop.bias for loop in loops if np.any(loop.bias)]
    scale = [loop.scale for loop in loops if np.any(loop.scale != 1)]
    rows = ",\n".join(f"    {loop_entry(loop)}" for loop in loops)
    return "\n".join(
        [
            f"static const trellis_loop loop_table[{len(loops)}] = {{\n{rows}\n}};",
            index_array("loop_gaps", "uint8_t", joined([gaps(loop) for loop in loops])),
            float_array("loop_weights", weights)
            if tables.values == "fp32"
            else index_array("loop_weights", value, weights),
            index_array("loop_fan", index, joined([_fans(loop) for loop in loops])),
            index_array("loop_sources", index, joined([loop.sources for loop in loops])),
            index_array("loop_extras", index, joined(extras)),
            float_array("loop_bias", joined(bias)),
            float_array("loop_scale", joined(scale)),
            "",
        ]
    )


def _fans(loop: Loop) -> NDArray[np.int64]:
    return loop.fan if loop.kind != "mean" else loop.fan[:0]


def _arrays(tables: Tables, index: str, value: str) -> str:
    steps = [step for step in tables.steps if isinstance(step, Step)]
    bias = [step.bias for step in steps if np.any(step.bias)]
    scale = [step.scale for step in steps if np.any(step.scale != 1)]
    weights = joined([step.weights for step in steps])
    if tables.values == "fp16":
        weights = weights.astype(np.float16).view(np.uint16)
    make_weights = (
        float_array("table_weights", weights)
        if tables.values == "fp32"
        else index_array("table_weights", value, weights)
    )
    return "\n".join(
        [
            *arrays_of_tables(tables, index),
            float_array("table_bias", joined(bias)),
            float_array("table_scale", joined(scale)),
            make_weights,
            "",
        ]
    )


_CURSOR = """\
{
        loop_gaps, loop_weights, loop_fan, loop_sources, loop_extras, loop_bias, loop_scale
    }"""


def _run(tables: Tables) -> str:
    cursor = f",\n    loop_table, {_CURSOR}" if tables.loops else ""
    model, evaluate = "", "trellis_evaluate(&model, scratch);"
    if tabled(tables):
        model = f"""\
static const trellis_tables model = {{
    TRELLIS_INPUTS, TRELLIS_OUTPUTS, {tables.size}, {len(tables.steps)},
    table_step, table_band, table_bias, table_scale, table_terms, table_weights,
    table_offsets, table_outs, table_results{cursor}
}};

"""
    else:
        evaluate = f"""\
trellis_loop_cursor at = {_CURSOR};
    for (unsigned i = 0; i < {len(tables.loops)}; i++)
        trellis_loop_run(&loop_table[i], &at, scratch, scratch + {tables.size} + TRELLIS_SLACK);"""
    return f"""\
{model}int trellis_run(const float *input, float *output, float *scratch) {{
    if (!input || !output || !scratch || !trellis_finite(input, TRELLIS_INPUTS)) return -1;
    if (input != scratch) memcpy(scratch, input, TRELLIS_INPUTS * sizeof *scratch);
    {evaluate}
    for (size_t i = 0; i < TRELLIS_OUTPUTS; i++) output[i] = scratch[table_results[i]];
    return 0;
}}
"""


def _names(name: str, size: str, words: list[str]) -> str:
    body = ",\n".join(f"    {string(word)}" for word in words)
    return f"const char *const {name}[{size}] = {{\n{body}\n}};\n"


def _recording(recording: dict[str, Any]) -> str:
    roots = ", ".join(str(root) for root in recording["roots"]) or "0"
    parts = [_names("trellis_joints", "TRELLIS_JOINTS", recording["joints"]), packaged("chunk.h")]
    transform = work = turn = size = follow = ""
    if follows(recording):
        parts.append(packaged("follow.h"))
        follow = (
            "    trellis_follow(input, TRELLIS_JOINTS, TRELLIS_CHUNKS, table_roots, "
            f"{len(recording['roots'])});\n"
        )
    if body := recording.get("body"):
        joints = ", ".join(map(str, body))
        parts += [packaged("turn.h"), f"static const unsigned table_body[4] = {{{joints}}};\n"]
        turn = "    trellis_turn(input, TRELLIS_JOINTS, TRELLIS_CHUNKS, table_body);\n"
    if bones := recording.get("bones"):
        joints = ", ".join(f"{one}, {other}" for one, other in bones)
        parts += [packaged("size.h"), f"static const unsigned table_bones[] = {{{joints}}};\n"]
        size = (
            "    trellis_size(input, TRELLIS_JOINTS, TRELLIS_CHUNKS, table_bones, "
            f"{len(bones)},\n        {number(bone_length(recording))});\n"
        )
    if waves(recording):
        table = cosine_table(recording["chunks"])
        parts += [packaged("cosine.h"), float_array("table_cosines", table)]
        work = "    float work[TRELLIS_CHUNKS * 3];\n"
        transform = (
            "    trellis_cosines(input, TRELLIS_JOINTS, TRELLIS_CHUNKS, table_cosines, work);\n"
        )
    parts.append(f"""\
static const unsigned table_roots[{max(len(recording["roots"]), 1)}] = {{{roots}}};

int trellis_input(const float *recording, size_t frames, float *input) {{
{work}    if (!recording || !input) return -1;
    if (trellis_chunk(recording, frames, TRELLIS_JOINTS, TRELLIS_CHUNKS, input) != 0) return -1;
{follow}    trellis_normalise(
        input, TRELLIS_JOINTS, TRELLIS_CHUNKS, table_roots, {len(recording["roots"])},
        {number(divisor(recording))});
{turn}{size}{transform}    return 0;
}}
""")
    return "\n".join(parts)


def _made(recording: dict[str, Any]) -> str:
    made = "averaged over TRELLIS_CHUNKS chunks, centred and scaled"
    if follows(recording):
        made = "averaged over TRELLIS_CHUNKS chunks, each centred on its roots, and scaled"
    if recording.get("body"):
        made += ",\n * turned into the body's frame"
    if recording.get("bones"):
        made += ",\n * brought to one size by the length of its bones"
    if not waves(recording):
        return f"{made}; [joint][chunk][x y z]"
    return f"{made}, and\n * its cosine transform (orthonormal DCT-II) taken; [joint][wave][x y z]"


def _shapes(shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(" x ".join(map(str, shape)) or "1" for shape in shapes)
