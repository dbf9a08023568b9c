"""The text of ``model.h``, ``model.c`` and ``main.c``."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..recording import bone_length, cosine_table, divisor, follows, waves
from ..tables.form import KINDS, LOOPS, Activation, Loop, Step, Tables

# Numbers as C initialisers.


WIDTH = 96


def index_array(name: str, kind: str, values: NDArray[Any]) -> str:
    """
    >>> print(index_array("fan", "uint16_t", np.array([1, 2])))
    static const uint16_t fan[2] = {
    1,2
    };
    """
    return _array(name, kind, (str(int(v)) for v in values), len(values))


def float_array(name: str, values: NDArray[Any]) -> str:
    return _array(name, "float", (number(v) for v in values), len(values))


def number(value: float) -> str:
    """The shortest C literal that reads back as the same single-precision number.

    >>> number(0.1), number(3.0), number(1e-9), number(float("-inf"))
    ('0.1f', '3.0f', '1e-09f', '-HUGE_VALF')
    """
    if np.isinf(value):
        return "HUGE_VALF" if value > 0 else "-HUGE_VALF"
    text = str(np.float32(value) + np.float32(0))  # −0.0 is 0.0
    return (text if any(c in text for c in ".e") else f"{text}.0") + "f"


def string(text: str) -> str:
    """A C string literal, whatever the text holds.

    >>> print(string('say "hi"\\n'))
    "say \\"hi\\"\\012"
    """
    made = [
        f"\\{chr(b)}"
        if chr(b) in '"\\'
        else chr(b)
        if 32 <= b < 127 and chr(b) != "?"
        else f"\\{b:03o}"
        for b in text.encode()
    ]
    return '"' + "".join(made) + '"'


def _array(name: str, kind: str, words: Iterable[str], length: int) -> str:
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) + 1 > WIDTH:
            lines.append(line)
            line = ""
        line += word + ","
    lines.append(line.rstrip(",") or "0")  # C has no empty arrays
    body = "\n".join(lines)
    return f"static const {kind} {name}[{max(length, 1)}] = {{\n{body}\n}};"


LICENCE = """\
/* Written by Trellis from a pruned network. This file may be used under any licence, or none:
 * the maker of the model decides.
 */
"""
_ARITHMETIC = ("none", "relu", "clamp", "leaky", "hardswish", "hardsigmoid", "reciprocal", "abs")


def packaged(name: str) -> str:
    """The text of one of the run-time's C files."""
    return files(__package__).joinpath("source", name).read_text(encoding="utf-8")


def arithmetic(tables: Tables) -> bool:
    """Whether no activation needs the maths library."""
    return all(step.act.name in _ARITHMETIC for step in tables.steps)


SLACK = 8  # TRELLIS_SLACK in loops.h: numbers behind memory that a vector may read


def scratch(tables: Tables) -> int:
    """The numbers of memory that exported C needs: units and, for loops, the taps of a channel."""
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
    index = "uint16_t" if tables.size <= 0xFFFF else "uint32_t"
    value = {"fp32": "float", "fp16": "uint16_t", "int8": "int8_t"}[tables.values]
    weight = {"fp32": "(w)", "fp16": "trellis_half(w)", "int8": "(float)(w)"}[tables.values]
    head = [LICENCE, '#include "model.h"', "", "#include <stddef.h>", "#include <string.h>", ""]
    if arithmetic(tables):
        head.append("#define TRELLIS_NO_MATH")
    if tables.loops:
        head.append("#define TRELLIS_LOOPS")
    head += [
        f"#define TRELLIS_INDEX {index}",
        f"#define TRELLIS_VALUE {value}",
        f"#define TRELLIS_WEIGHT(w) {weight}",
        "",
    ]
    parts = ["\n".join(head), packaged("tables.h"), packaged("activation.h")]
    if tables.values == "fp16":
        parts.append(packaged("half.h"))
    if tables.loops:
        parts.append(packaged("loops.h"))
    if _tabled(tables):
        parts += [packaged(name) for name in ("real.h", "fours.h", "sums.h", "kernel.h")]
    parts.append(packaged("finite.h"))
    if tables.loops:
        parts.append(_loop_arrays(tables, index, value))
    if _tabled(tables):
        parts.append(_arrays(tables, index, value))
    else:
        parts += [index_array("table_results", index, tables.results), ""]
    parts.append(_run(tables))
    if tables.notes.get("classes"):
        parts.append(_names("trellis_classes", "TRELLIS_CLASSES", tables.notes["classes"]))
    if tables.notes.get("recording"):
        parts.append(_recording(tables.notes["recording"]))
    return "\n".join(parts)


def program(tables: Tables) -> str:
    """``main.c``: names the action in a recording, or computes a line of outputs for each input."""
    recognises = tables.notes.get("recording") and tables.notes.get("classes")
    text = packaged("recording_main.c" if recognises else "rows_main.c")
    parts = packaged("frame.h") + "\n" + packaged("lines.h")
    if not recognises:  # what names of columns are for
        begin, end = parts.index("/* How many cells"), parts.index("/* One frame from a line")
        parts = parts[:begin] + parts[end:]
    return LICENCE + text.replace("@INCLUDES@", parts)


def _tabled(tables: Tables) -> bool:
    """Whether there is a step that is no loop, or none at all."""
    return len(tables.loops) < len(tables.steps) or not tables.steps


def gaps(loop: Loop) -> NDArray[np.int64]:
    """The taps of a loop in bytes: how far each is from the one before; 255 is that far and no tap.

    >>> from types import SimpleNamespace
    >>> gaps(SimpleNamespace(taps=np.array([3, 4, 300, 2]), fan=np.array([3, 1]))).tolist()
    [3, 0, 255, 40, 2]
    """
    ends = np.cumsum(loop.fan)
    found = np.diff(loop.taps, prepend=-1) - 1
    begins = (ends - loop.fan)[loop.fan > 0]
    found[begins] = loop.taps[begins]
    far = found // 255
    made = np.full(len(found) + int(far.sum()), 255)
    made[np.cumsum(far + 1) - 1] = found % 255
    return made


def _loop_arrays(tables: Tables, index: str, value: str) -> str:
    loops = tables.loops
    weights = _joined([loop.weights for loop in loops])
    if tables.values == "fp16":
        weights = weights.astype(np.float16).view(np.uint16)
    extras = [np.maximum(loop.extras, 0) for loop in loops]
    bias = [loop.bias for loop in loops if np.any(loop.bias)]
    scale = [loop.scale for loop in loops if np.any(loop.scale != 1)]
    rows = ",\n".join(f"    {_loop_entry(loop)}" for loop in loops)
    return "\n".join(
        [
            f"static const trellis_loop loop_table[{len(loops)}] = {{\n{rows}\n}};",
            index_array("loop_gaps", "uint8_t", _joined([gaps(loop) for loop in loops])),
            float_array("loop_weights", weights)
            if tables.values == "fp32"
            else index_array("loop_weights", value, weights),
            index_array("loop_fan", index, _joined([_fans(loop) for loop in loops])),
            index_array("loop_sources", index, _joined([loop.sources for loop in loops])),
            index_array("loop_extras", index, _joined(extras)),
            float_array("loop_bias", _joined(bias)),
            float_array("loop_scale", _joined(scale)),
            "",
        ]
    )


def _fans(loop: Loop) -> NDArray[np.int64]:
    return loop.fan if loop.kind != "mean" else loop.fan[:0]


def _loop_entry(loop: Loop) -> str:
    flags = [
        len(KINDS) + LOOPS.index(loop.kind), loop.act.code, int(loop.shared),
        int(np.any(loop.bias)), int(np.any(loop.scale != 1)), int(len(loop.extras) > 0),
    ]  # fmt: skip
    numbers = [*loop.shape, *loop.out, *loop.stride, *loop.window, *loop.reach]
    numbers += [len(loop.sources), *loop.border]
    words = [*map(str, flags), number(loop.act.a), number(loop.act.b), *map(str, numbers)]
    return f"{{{', '.join(words)}}}"


def _arrays(tables: Tables, index: str, value: str) -> str:
    steps = [step for step in tables.steps if isinstance(step, Step)]
    modulo = 1 << (16 if index == "uint16_t" else 32)
    rows = ",\n".join(f"    {_entry(step)}" for step in tables.steps) or "    {0}"
    bands = [band for step in steps for band in step.bands]
    lines = ",\n".join(f"    {{{', '.join(map(str, band))}}}" for band in bands) or "    {0}"
    bias = [step.bias for step in steps if np.any(step.bias)]
    scale = [step.scale for step in steps if np.any(step.scale != 1)]
    weights = _joined([step.weights for step in steps])
    if tables.values == "fp16":
        weights = weights.astype(np.float16).view(np.uint16)
    make_weights = (
        float_array("table_weights", weights)
        if tables.values == "fp32"
        else index_array("table_weights", value, weights)
    )
    return "\n".join(
        [
            f"static const trellis_step table_step[{max(len(tables.steps), 1)}] = {{\n{rows}\n}};",
            f"static const trellis_band table_band[{max(len(bands), 1)}] = {{\n{lines}\n}};",
            float_array("table_bias", _joined(bias)),
            float_array("table_scale", _joined(scale)),
            index_array("table_terms", index, _joined([_terms(step) for step in steps]) % modulo),
            make_weights,
            index_array("table_offsets", index, _joined([step.offsets for step in steps])),
            index_array("table_outs", index, _joined([step.outs for step in steps])),
            index_array("table_results", index, tables.results),
            "",
        ]
    )


def _terms(step: Step) -> Any:
    return step.terms if step.kind != "dot" else np.stack([step.terms, step.others], 1).reshape(-1)


def _joined(parts: list[Any]) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _entry(step: Step | Loop) -> str:
    if isinstance(step, Loop):
        return f"{{{len(KINDS)}, 0, 0, 0, 0, 0.0f, 0.0f, 0}}"  # the next loop
    act: Activation = step.act
    biased, scaled = int(np.any(step.bias)), int(np.any(step.scale != 1))
    flags = f"{biased}, {scaled}, {int(step.adds)}"
    return (
        f"{{{KINDS.index(step.kind)}, {act.code}, {flags}, {number(act.a)}, "
        f"{number(act.b)}, {len(step.bands)}}}"
    )


_CURSOR = """\
{
        loop_gaps, loop_weights, loop_fan, loop_sources, loop_extras, loop_bias, loop_scale
    }"""


def _run(tables: Tables) -> str:
    cursor = f",\n    loop_table, {_CURSOR}" if tables.loops else ""
    model, evaluate = "", "trellis_evaluate(&model, scratch);"
    if _tabled(tables):
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
