"""A report as LaTeX: a document that compiles as it is, whose table can be taken out."""

from __future__ import annotations

from ..report import Column, Report, shown
from .plain import one_line

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


def escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is; letters that its fonts may lack become question marks.

    >>> escaped("50 % & \\input{x}")
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
    out.append(rf"\caption{{{escaped(_caption(report))}}}\\")
    out += [r"\toprule", heads, r"\midrule", r"\endfirsthead"]
    out += [r"\toprule", heads, r"\midrule", r"\endhead", r"\bottomrule", r"\endfoot"]
    for line in report.lines:
        if line.rule:
            out.append(r"\midrule")
        out.append(" & ".join(escaped(shown(value)) for value in line.values) + r" \\")
    out += [r"\end{longtable}", r"\endgroup", "% table ends", ""]
    out += [rf"\noindent\textbf{{{escaped(text)}}}\par" for text in report.warnings]
    out += [rf"\noindent {escaped(name)}: {escaped(text)}\par" for name, text in report.facts]
    out.append(r"\begin{enumerate}")
    out += [rf"\item {escaped(text)}" for text in report.notes]
    out += [r"\end{enumerate}", r"\end{document}", ""]
    return "\n".join(out)


def _head(column: Column) -> str:
    """Of "paper: kept" the first word stands above the second: the page is only so wide."""
    above, colon, below = column.name.partition(": ")
    if not colon:
        return escaped(column.name)
    return rf"\shortstack[{'l' if column.words else 'r'}]{{{escaped(above)}:\\{escaped(below)}}}"


def _caption(report: Report) -> str:
    """A table taken out of the document must still say what it is of."""
    kind = " (SYNTHETIC DATA)" if report.synthetic else ""
    return f"{report.title}, on {report.data}{kind}."
