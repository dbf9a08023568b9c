"""Tables as C initialisers: numbers, strings, arrays, and the entries of steps and loops."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..tables.form import KINDS, LOOPS, Activation, Loop, Step, Tables

WIDTH = 96
_OPTIONAL = {"PEAKS": "peak", "MEANS": "mean", "MAXIMA": "max", "DOTS": "dot"}  # parts of kernels


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


def packaged(name: str) -> str:
    """The text of one of the run-time's C files."""
    return files(__package__).joinpath("source", name).read_text(encoding="utf-8")


def resolved(text: str, known: Mapping[str, bool]) -> str:
    """Leave out what C's preprocessor would, where it only depends on macros that are known.

    Args:
        text: C, with a directive a line.
        known: Macros, and whether each is defined. Conditions that name others stay.

    >>> text = "#ifdef A\\none\\n#else\\ntwo\\n#endif\\n#ifdef B\\nthree\\n#endif"
    >>> print(resolved(text, {"A": False}))
    two
    #ifdef B
    three
    #endif
    """
    lines: list[str] = []
    open_ones: list[bool | None] = []  # whether its lines stay; None for a condition that stays
    for line in text.split("\n"):
        word = line.split(maxsplit=1)[0] if line.startswith("#") else ""
        if word in ("#if", "#ifdef", "#ifndef"):
            open_ones.append(_holds(line, known))
            if open_ones[-1] is not None:
                continue
        elif word == "#else" and open_ones[-1] is not None:
            open_ones[-1] = not open_ones[-1]
            continue
        elif word == "#endif" and open_ones.pop() is not None:
            continue
        if False not in open_ones:
            lines.append(line)
    return "\n".join(lines)


def _holds(line: str, known: Mapping[str, bool]) -> bool | None:
    """Whether the condition of a directive holds, or None where that is not known."""
    found = re.match(r"#if(n?)def (\w+)", line)
    if found:
        value = known.get(found[2])
        return value if value is None or not found[1] else not value
    if not re.fullmatch(r"#if defined\(\w+\)( \|\| defined\(\w+\))*", line):
        return None
    values = [known.get(name) for name in re.findall(r"\((\w+)\)", line)]
    return None if None in values else any(values)


def kernel(tables: Tables, *names: str) -> list[str]:
    """The text of the run-time's C files, without what these tables never use."""
    loops = tables.loops
    kinds = {step.kind for step in tables.steps}
    known = {
        "TRELLIS_DECODED": False,  # the run-time's own
        "TRELLIS_WIDE8": False,
        "TRELLIS_INT8": tables.int8 is not None,
        "TRELLIS_LOOPS": bool(loops),
        **{f"TRELLIS_NO_{name}": kind not in kinds for name, kind in _OPTIONAL.items()},
    }
    return [resolved(packaged(name), known) for name in names]


def tabled(tables: Tables) -> bool:
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


def loop_entry(loop: Loop) -> str:
    flags = [
        len(KINDS) + LOOPS.index(loop.kind), loop.act.code, int(loop.shared),
        int(np.any(loop.bias)), int(np.any(loop.scale != 1)), int(len(loop.extras) > 0),
    ]  # fmt: skip
    numbers = [*loop.shape, *loop.out, *loop.stride, *loop.window, *loop.reach]
    numbers += [len(loop.sources), *loop.border]
    words = [*map(str, flags), number(loop.act.a), number(loop.act.b), *map(str, numbers)]
    return f"{{{', '.join(words)}}}"


def arrays_of_tables(tables: Tables, index: str) -> list[str]:
    """The steps, bands and addresses of steps that are no loops."""
    steps = [step for step in tables.steps if isinstance(step, Step)]
    modulo = 1 << (16 if index == "uint16_t" else 32)
    rows = ",\n".join(f"    {_entry(step)}" for step in tables.steps) or "    {0}"
    bands = [band for step in steps for band in step.bands]
    lines = ",\n".join(f"    {{{', '.join(map(str, band))}}}" for band in bands) or "    {0}"
    return [
        f"static const trellis_step table_step[{max(len(tables.steps), 1)}] = {{\n{rows}\n}};",
        f"static const trellis_band table_band[{max(len(bands), 1)}] = {{\n{lines}\n}};",
        index_array("table_terms", index, joined([_terms(step) for step in steps]) % modulo),
        index_array("table_offsets", index, joined([step.offsets for step in steps])),
        index_array("table_outs", index, joined([step.outs for step in steps])),
        index_array("table_results", index, tables.results),
    ]


def _terms(step: Step) -> Any:
    return step.terms if step.kind != "dot" else np.stack([step.terms, step.others], 1).reshape(-1)


def joined(parts: list[Any]) -> Any:
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
