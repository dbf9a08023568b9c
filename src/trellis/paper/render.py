"""Write a report for a terminal, as Markdown, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
import re
import unicodedata

from rich.box import HORIZONTALS
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from .figures import Column, Figure, Report, Value, shown


def one_line(text: str) -> str:
    """Return text from files without line breaks and terminal control characters.

    >>> one_line("a\\nb\\x1b[31mc")
    'a b [31mc'
    """
    clean = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in text
    )
    return " ".join(clean.split())


def comma(report: Report) -> str:
    """Return the report as CSV, with mean and deviation in separate columns.

    Every row names the data and whether it is synthetic. Text that a spreadsheet would run as a
    formula gets an apostrophe in front.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = [part for column in report.columns for part in _heads(column)]
    writer.writerow(["data", "synthetic", *map(_text, heads)])
    for line in report.lines:
        cells = [
            part
            for column, value in zip(report.columns, line.values, strict=True)
            for part in _cells(column, value)
        ]
        writer.writerow([_text(report.data), "yes" if report.synthetic else "no", *cells])
    return out.getvalue()


def _heads(column: Column) -> list[str]:
    return [column.name, f"{column.name} deviation"] if column.figures else [column.name]


def _cells(column: Column, value: Value) -> list[str]:
    if isinstance(value, Figure):
        return [part.replace(",", "") for part in value.parts()]
    text = "" if value is None else _text(value)
    if not column.words and text.replace(",", "").isdigit():
        text = text.replace(",", "")
    return [text, ""] if column.figures else [text]


def _text(text: str) -> str:
    text = one_line(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": r"-{}",  # two in a row would become a dash
    "±": r"\ensuremath{\pm}",
    "α": r"\ensuremath{\alpha}",
    "–": "--",
    "→": r"\ensuremath{\to}",
    "−": r"\ensuremath{-}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
}
_HEAD = r"""% Made by trellis. The table between the marks needs booktabs and longtable.
\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{textcomp}
\usepackage{booktabs,longtable}
\usepackage[landscape,margin=1cm]{geometry}
\begin{document}
"""


def escaped_latex(text: str) -> str:
    r"""Return text with LaTeX's special characters escaped; unknown letters become "?".

    >>> escaped_latex("50 % & \\input{x}")
    '50 \\% \\& \\textbackslash{}input\\{x\\}'
    """
    return "".join(
        _SPECIAL.get(c) or (c if c.isascii() or _latin(c) else "?") for c in one_line(text)
    )


def _latin(character: str) -> bool:
    return "À" <= character <= "ÿ"


def latex(report: Report) -> str:
    """Return the report as a LaTeX document; the table in it can be copied."""
    align = "".join("l" if column.words else "r" for column in report.columns)
    heads = " & ".join(_head(column) for column in report.columns) + r" \\"
    out = [_HEAD, "% table begins", r"\begingroup\scriptsize\setlength{\tabcolsep}{3pt}"]
    out.append(rf"\begin{{longtable}}{{{align}}}")
    out.append(rf"\caption{{{escaped_latex(_caption(report))}}}\\")
    out += [r"\toprule", heads, r"\midrule", r"\endfirsthead"]
    out += [r"\toprule", heads, r"\midrule", r"\endhead", r"\bottomrule", r"\endfoot"]
    for line in report.lines:
        if line.rule:
            out.append(r"\midrule")
        out.append(" & ".join(escaped_latex(shown(value)) for value in line.values) + r" \\")
    out += [r"\end{longtable}", r"\endgroup", "% table ends", ""]
    out += [rf"\noindent\textbf{{{escaped_latex(text)}}}\par" for text in report.warnings]
    out += [
        rf"\noindent {escaped_latex(name)}: {escaped_latex(text)}\par"
        for name, text in report.facts
    ]
    out.append(r"\begin{enumerate}")
    out += [rf"\item {escaped_latex(text)}" for text in report.notes]
    out += [r"\end{enumerate}", r"\end{document}", ""]
    return "\n".join(out)


def _head(column: Column) -> str:
    """Return a heading; "paper: kept" becomes two lines, because the page is narrow."""
    above, colon, below = column.name.partition(": ")
    if not colon:
        return escaped_latex(column.name)
    side, first, second = ("l" if column.words else "r"), escaped_latex(above), escaped_latex(below)
    return rf"\shortstack[{side}]{{{first}:\\{second}}}"


def _caption(report: Report) -> str:
    """Return the caption, which names the data also in a copied table."""
    kind = " (SYNTHETIC DATA)" if report.synthetic else ""
    return f"{report.title}, on {report.data}{kind}."


# A report as Markdown, with a pipe table.


_markdown_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#$&!])")


def escaped_markdown(text: str) -> str:
    """Return text with Markdown's special characters escaped.

    >>> escaped_markdown("a|b <i> _c_")
    'a\\\\|b \\\\<i\\\\> \\\\_c\\\\_'
    """
    return _markdown_SPECIAL.sub(r"\\\1", one_line(text))


def markdown(report: Report) -> str:
    heads = [escaped_markdown(column.name) for column in report.columns]
    marks = [":---" if column.words else "---:" for column in report.columns]
    lines = [f"# {escaped_markdown(report.title)}", ""]
    for text in report.warnings:
        lines += [f"> **{escaped_markdown(text)}**", ">"]
    if report.warnings:
        lines[-1] = ""
    lines += ["| " + " | ".join(heads) + " |", "| " + " | ".join(marks) + " |"]
    for line in report.lines:
        cells = [escaped_markdown(shown(value)) for value in line.values]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for name, text in report.facts:
        value = _code(text) if name == "Command" else escaped_markdown(text)
        lines.append(f"- {name}: {value}")
    lines.append("")
    lines += [f"{i}. {escaped_markdown(text)}" for i, text in enumerate(report.notes, 1)]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """Return a code span, also for text with backticks."""
    text = one_line(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


# A report for a terminal, and as plain text.


def terminal(report: Report) -> RenderableType:
    """Return the report for `rich`, with all text escaped."""
    table = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, header_style="bold")
    for column in report.columns:
        table.add_column(
            Text(one_line(column.name).replace(": ", ":\n")),
            justify="left" if column.words else "right",
            no_wrap=not column.words,
        )
    for line in report.lines:
        if line.rule:
            table.add_section()
        cells = [Text(one_line(shown(value))) for value in line.values]
        table.add_row(*cells, style="" if line.strong else "dim")
    parts: list[RenderableType] = [Text(one_line(report.title), style="bold"), Text()]
    for text in report.warnings:
        parts += [Text(one_line(text), style="bold yellow"), Text()]
    parts += [table, Text()]
    width = max((len(name) for name, _ in report.facts), default=0)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(min_width=width)
    facts.add_column(overflow="fold")
    for name, text in report.facts:
        facts.add_row(Text(name, style="bold"), Text(one_line(text)))
    parts += [facts, Text()]
    parts += [Text(f"{i}. {one_line(text)}") for i, text in enumerate(report.notes, 1)]
    return Group(*parts)


def width(made: RenderableType) -> int:
    """Return the console width that the table needs."""
    assert isinstance(made, Group)
    table = next(part for part in made.renderables if isinstance(part, Table))
    return Console(width=1000, file=io.StringIO()).measure(table).maximum


def text(report: Report) -> str:
    """Return the report as plain text, as wide as the table."""
    out = io.StringIO()
    made = terminal(report)
    wide = max(100, width(made))
    Console(file=out, width=wide, color_system=None, force_terminal=False).print(made)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
