"""A report as Markdown, with a pipe table."""

from __future__ import annotations

import re

from ..report import Report, shown
from .plain import one_line

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#$&!])")


def escaped(text: str) -> str:
    """Text that Markdown shows as it is.

    >>> escaped("a|b <i> _c_")
    'a\\\\|b \\\\<i\\\\> \\\\_c\\\\_'
    """
    return _SPECIAL.sub(r"\\\1", one_line(text))


def markdown(report: Report) -> str:
    heads = [escaped(column.name) for column in report.columns]
    marks = [":---" if column.words else "---:" for column in report.columns]
    lines = [f"# {escaped(report.title)}", ""]
    for text in report.warnings:
        lines += [f"> **{escaped(text)}**", ">"]
    if report.warnings:
        lines[-1] = ""
    lines += ["| " + " | ".join(heads) + " |", "| " + " | ".join(marks) + " |"]
    for line in report.lines:
        cells = [escaped(shown(value)) for value in line.values]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for name, text in report.facts:
        value = _code(text) if name == "Command" else escaped(text)
        lines.append(f"- {name}: {value}")
    lines.append("")
    lines += [f"{i}. {escaped(text)}" for i, text in enumerate(report.notes, 1)]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """A span of code, whatever backticks are in it."""
    text = one_line(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"
