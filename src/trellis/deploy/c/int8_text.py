"""The text of ``model.c`` in arithmetic of 8 bits; the files beside it are as for floats."""

from __future__ import annotations

import numpy as np

from ..tables.form import Loop, Step, Tables
from ..tables.int8 import Coding, Int8, Rescale
from .arrays import (
    arrays_of_tables,
    gaps,
    index_array,
    joined,
    kernel,
    loop_entry,
    number,
    tabled,
)

SLACK = 64  # TRELLIS_SLACK in int8_loops.h: bytes behind memory that a vector may read
_PARTS = """\
#define TRELLIS_INDEX {index}
#define TRELLIS_VALUE int8_t
#define TRELLIS_WEIGHT(w) (w)
"""


def scratch_bytes(tables: Tables) -> tuple[int, int]:
    """Return the bytes of memory that exported C needs, and where in them its list of taps lies.

    An input may lie at the beginning as floats, before it becomes bytes.
    """
    units = max(tables.size + (SLACK if tables.loops else 0), 4 * tables.input_units)
    units += -units % 4
    longest = max((int(loop.fan.max(initial=0)) for loop in tables.loops), default=-2)
    return units + 4 * (longest + 2), units


def int8_parts(tables: Tables, form: Int8) -> list[str]:
    """Return the parts of ``model.c`` from its types to `trellis_run`."""
    index = "uint16_t" if tables.size <= 0xFFFF else "uint32_t"
    names = ["tables.h", "int8.h"]
    if tables.loops:
        names.append("int8_loops.h")
    if tabled(tables):
        names.append("int8_rows.h")
    parts = [_PARTS.format(index=index), *kernel(tables, *names, "finite.h")]
    if tables.loops:
        parts.append(_loops(tables, index))
    if tabled(tables):
        steps = [step for step in tables.steps if isinstance(step, Step)]
        parts += [
            *arrays_of_tables(tables, index),
            index_array("table_weights", "int8_t", joined([s.weights for s in steps])),
            index_array("table_offset", "int32_t", joined([s.bias for s in steps])),
            index_array("table_multiplier", "int16_t", joined([s.scale for s in steps])),
        ]
    else:
        parts.append(index_array("table_results", index, tables.results))
    return [*parts, _rescales(form.steps), _run(tables, form)]


def _loops(tables: Tables, index: str) -> str:
    loops = tables.loops
    rows = ",\n".join(f"    {loop_entry(loop)}" for loop in loops)
    fans = [loop.fan if loop.kind != "mean" else loop.fan[:0] for loop in loops]
    extras = [np.maximum(loop.extras, 0) for loop in loops]
    return "\n".join(
        [
            f"static const trellis_loop loop_table[{len(loops)}] = {{\n{rows}\n}};",
            index_array("loop_gaps", "uint8_t", joined([gaps(loop) for loop in loops])),
            index_array("loop_weights", "int8_t", joined([loop.weights for loop in loops])),
            index_array("loop_fan", index, joined(fans)),
            index_array("loop_sources", index, joined([loop.sources for loop in loops])),
            index_array("loop_extras", index, joined(extras)),
            index_array("loop_offset", "int32_t", joined([loop.bias for loop in loops])),
            index_array("loop_multiplier", "int16_t", joined([loop.scale for loop in loops])),
        ]
    )


def _rescales(steps: tuple[Rescale, ...]) -> str:
    parts, rows = [], []
    for place, r in enumerate(steps):
        table = "NULL"
        if r.table is not None:
            table = f"table_of_{place}"
            parts.append(index_array(table, "uint8_t", r.table))
        numbers = [r.before, r.after, r.low, r.high, r.zero, r.absent, r.beside, r.offset]
        rows.append(f"    {{{', '.join(map(str, numbers))}, {table}}}")
    body = ",\n".join(rows) or "    {0}"
    parts.append(f"static const trellis_rescale rescales[{max(len(steps), 1)}] = {{\n{body}\n}};")
    return "\n".join(parts)


def _run(tables: Tables, form: Int8) -> str:
    _, list_at = scratch_bytes(tables)
    before, lines, after = [], [], []
    begin = 0
    for shape, coding in zip(tables.inputs, form.inputs, strict=True):
        units = int(np.prod(shape))
        before.append(
            f"    trellis_encode8(input + {begin}, {units}, {number(float(coding.twice))}, "
            f"{coding.zero}, x + {begin});"
        )
        begin += units
    if tables.loops:
        before += [
            "    trellis_loop_cursor at = {",
            "        loop_gaps, loop_weights, loop_fan, loop_sources, loop_extras, loop_offset,",
            "        loop_multiplier};",
            "    const trellis_loop *loop = loop_table;",
            f"    uint32_t *list = (uint32_t *)(void *)(x + {list_at});",
        ]
    if tabled(tables):
        before += [
            "    trellis_rows_cursor rows = {",
            "        table_terms, table_offsets, table_outs, table_weights, table_offset,",
            "        table_multiplier};",
            "    const trellis_band *band = table_band;",
        ]
    one = "trellis_loop_run8(loop++, &rescales[i], &at, x, list);"
    other = "band = trellis_rows8(&table_step[i], &rescales[i], band, &rows, x);"
    if not tables.loops:
        lines = [f"        {other}"]
    elif not tabled(tables):
        lines = [f"        {one}"]
    else:
        lines = [f"        if (table_step[i].kind == TRELLIS_CONV) {one}", f"        else {other}"]
    begin = 0
    for shape, coding in zip(tables.outputs, form.outputs, strict=True):
        after.append(_decoded(begin, int(np.prod(shape)), coding))
        begin += int(np.prod(shape))
    steps = f"    for (unsigned i = 0; i < {len(tables.steps)}; i++)" if tables.steps else ""
    return "\n".join(
        [
            "int trellis_run(const float *input, float *output, float *scratch) {",
            "    uint8_t *x = (uint8_t *)scratch;",
            "    if (!input || !output || !scratch || !trellis_finite(input, TRELLIS_INPUTS)) "
            "return -1;",
            *before,
            *([steps, *lines] if tables.steps else []),
            *after,
            "    return 0;",
            "}",
            "",
        ]
    )


def _decoded(begin: int, units: int, coding: Coding) -> str:
    return (
        f"    for (size_t i = {begin}; i < {begin + units}; i++)\n"
        f"        output[i] = (float)((int32_t)x[table_results[i]] - {coding.zero}) * "
        f"{number(coding.scale)};"
    )


def int8_flash(tables: Tables, form: Int8) -> int:
    """Return the bytes of const tables in the C of these tables."""
    index = 2 if tables.size <= 0xFFFF else 4
    total = index * len(tables.results) + sum(
        20 + (0 if rescale.table is None else 256) for rescale in form.steps
    )
    for step in tables.steps:
        total += 6 * len(step.bias) + len(step.weights)
        if isinstance(step, Loop):
            total += 16 + index * (19 + len(step.fan) + len(step.sources) + len(step.extras))
            total += len(gaps(step))
        else:
            total += 20 + index * (3 * len(step.bands) + len(step.terms) + 2 * len(step.outs))
    return total
