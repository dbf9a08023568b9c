"""Numbers as C initialisers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH = 96


def index_array(name: str, kind: str, values: NDArray[Any]) -> str:
    """
    >>> print(index_array("fan", "uint16_t", np.array([1, 2])))
    static const uint16_t fan[2] = {
        1, 2
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
        if len(line) + len(word) + 2 > WIDTH:
            lines.append(line)
            line = ""
        line += (" " if line else "") + word + ","
    lines.append(line.rstrip(",") or "0")  # C has no empty arrays
    body = "\n".join(f"    {line}" for line in lines)
    return f"static const {kind} {name}[{max(length, 1)}] = {{\n{body}\n}};"
