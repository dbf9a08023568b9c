"""Reports as text: for a terminal, Markdown, CSV, LaTeX."""

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

# Text that others wrote, made safe to show anywhere.


def one_line(text: str) -> str:
    """Without line breaks or characters that steer a terminal.

    >>> one_line("a\\nb\\x1b[31mc")
    'a b [31mc'
    """
    clean = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in text
    )
    return " ".join(clean.split())


# A report as CSV: figures as plain numbers, mean and deviation in columns of their own.


def comma(report: Report) -> str:
    """Data and whether it is synthetic stand in every row, so that no row is taken for another's.

    A spreadsheet runs text that begins like a formula: such text gets an apostrophe before it.
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


# A report as LaTeX: a document that compiles as it is, whose table can be taken out.


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
    r"""Text that LaTeX prints as it is; letters that its fonts may lack become question marks.

    >>> escaped_latex("50 % & \\input{x}")
    '50 \\% \\& \\textbackslash{}input\\{x\\}'
    """
    return "".join(
        _SPECIAL.get(c) or (c if c.isascii() or _latin(c) else "?") for c in one_line(text)
    )


def _latin(character: str) -> bool:
    return "À" <= character <= "ÿ"


def latex(report: Report) -> str:
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
    """Of "paper: kept" the first word stands above the second: the page is only so wide."""
    above, colon, below = column.name.partition(": ")
    if not colon:
        return escaped_latex(column.name)
    side, first, second = ("l" if column.words else "r"), escaped_latex(above), escaped_latex(below)
    return rf"\shortstack[{side}]{{{first}:\\{second}}}"


def _caption(report: Report) -> str:
    """A table taken out of the document must still say what it is of."""
    kind = " (SYNTHETIC DATA)" if report.synthetic else ""
    return f"{report.title}, on {report.data}{kind}."


# A report as Markdown, with a pipe table.


_markdown_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#$&!])")


def escaped_markdown(text: str) -> str:
    """Text that Markdown shows as it is.

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
    """A span of code, whatever backticks are in it."""
    text = one_line(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


# A report for a terminal, and as plain text.


def terminal(report: Report) -> RenderableType:
    """Everything as rich shows it; no text of others is read as markup."""
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
    """How wide a console must be so that no figure is cut."""
    assert isinstance(made, Group)
    table = next(part for part in made.renderables if isinstance(part, Table))
    return Console(width=1000, file=io.StringIO()).measure(table).maximum


def text(report: Report) -> str:
    """As a file: as wide as the table is, and nothing in colour."""
    out = io.StringIO()
    made = terminal(report)
    wide = max(100, width(made))
    Console(file=out, width=wide, color_system=None, force_terminal=False).print(made)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
