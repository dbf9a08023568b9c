"""Write a report for a terminal, as Markdown, CSV or LaTeX, with its warnings and notes."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Sequence

from rich.box import HORIZONTALS
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from .plan import architecture_of
from .published import PARAMETERS, TEST_RECORDINGS
from .settings import Data, Settings, is_benchmark
from .tables import Column, Figure, Report, Summary, Value, shown


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


def warnings(settings: Settings, data: Data, missing: int, wanted: int) -> tuple[str, ...]:
    """Return the warnings that stand above the table."""
    found = []
    if data.synthetic:
        found.append(
            f"SYNTHETIC DATA: {settings.data} is made by a program. Its figures compare "
            "methods; they say nothing about real recordings."
        )
    if not is_benchmark(settings, data):
        found.append(
            "The paper's figures are of FPHA, 1:1 split. They stand here for orientation and "
            "cannot be compared with figures on other data."
        )
    if missing:
        found.append(
            f"UNFINISHED: {missing:,} of {wanted:,} networks are not trained yet; give the "
            "command below again to continue."
        )
    return tuple(found)


def spread(settings: Settings, data: Data) -> str:
    """Return the note about means and deviations."""
    folds = (
        f" A seed's figure is the mean over its {len(data.folds)} folds, weighted by their test "
        "recordings."
        if len(data.folds) > 1
        else ""
    )
    if settings.seeds == 1:
        return f"One seed: no spread is known.{folds}"
    return (
        f"Figures are mean ± sample standard deviation over {settings.seeds} seeds (each a first "
        f"network, its noise and its sampling).{folds}"
    )


def accuracy(settings: Settings, data: Data) -> str:
    """Return the note about the two accuracies."""
    compare = ": compare it with that column" if is_benchmark(settings, data) else ""
    return (
        "Top-1 is over test recordings, mean-class the mean over classes. The paper's text says "
        f"the latter, but each of its accuracies is k/{TEST_RECORDINGS} cut after two decimals, so "
        f"top-1{compare}. It gives one run each and no spread; one recording is 0.17 points."
    )


def size(settings: Settings, data: Data) -> str:
    """Return the note about the network's size."""
    total = architecture_of(settings, data).connections
    return (
        f"The paper's network has {PARAMETERS:,} parameters, not all of whose shapes can be "
        f"recovered from its text; this one has {total:,}."
    )


def training(settings: Settings) -> str:
    """Return the note about the recipe."""
    recipe = settings.recipe
    if recipe.name == "paper":
        return (
            f"The paper does not give the first rate ({recipe.rate:g} here) nor the length and "
            f"rate of fine-tuning ({recipe.tune_epochs:,} epochs from {recipe.tune_rate:g} here). "
            "Here, each network follows the paper's rule by its own loss, between a hundredth and "
            "ten times the first rate. All training recordings are one batch, since the paper's "
            "600 are all of FPHA's; momentum 0.9 is Adam's beta 1. These open details may explain "
            "lower figures at extreme rates."
        )
    return (
        f"Recipe {recipe.name!r} is not the paper's training. The recipe 'paper' is: 2,700 "
        "full-batch Adam steps with the paper's learning-rate rule."
    )


def inputs(settings: Settings) -> str:
    """Return the note about the origin of coordinates and the first weights."""
    recipe = settings.recipe
    origin = {
        "frame": "every frame is placed relative to its own root joints (the wrist of a hand)",
        "recording": "the origin is the mean position of the root joints over a recording",
    }[recipe.origin]
    weights = {
        "fan-in": "every tensor normal / sqrt(fan-in), where the fan-in of the attention is the "
        "number of nodes",
        "usual": "attention normal / nodes, convolution normal * sqrt(2 / channels), dense layer "
        "uniform within 1 / sqrt(fan-in)",
    }[recipe.first_weights]
    note = (
        f"The paper gives neither the origin of coordinates nor the first weights. Here {origin}, "
        "all coordinates are divided by one number, their standard deviation in the training "
        f"recordings, and first weights are {weights}."
    )
    if recipe.name != "paper":
        return note
    return (
        f"{note} The recipe 'paper' takes of the readings tried on FPHA the one whose dense "
        "accuracy came nearest to the paper's. No biases, dropout, weight decay, label smoothing "
        "or augmentation."
    )


def lone(settings: Settings, data: Data, number: int) -> str:
    """Return the note about the fold that is also shown alone."""
    return (
        f"{data.folds[number]} alone ({data.test[number]} test recordings): later papers by the "
        f"author seem to report one split of {settings.data.partition(':')[0].upper()} with 65 "
        "test recordings, which is the size of this fold. Compare other published figures with "
        "the mean over folds."
    )


def for_table2(settings: Settings, data: Data, rows: Sequence[Summary]) -> list[str]:
    """Return the notes of table 2."""
    notes = [
        "% live: the share of kept connections on a path of kept connections from an input to an "
        "output (the paper's A-C), audited after pruning and before fine-tuning.",
        "MP removes the same rate from every layer, as the paper's counts show its own does; "
        "stochastic MP samples without replacement, in proportion to magnitude, in each layer.",
        "A confound of the paper: MP by layer leaves most of its budget in the dense layer, while "
        "chains add about one connection per layer each. Part of what TC gains is this better "
        "allocation: compare the rows MP with TC's layer budgets, global MP and LAMP.",
        "Of the paper's own figures, with TC stochasticity helps at 75, 90 and 99.9 % and hurts "
        "at 95 and 99 %; without TC it helps at 75, 90 and 95 % and hurts beyond. Its claim that "
        "MP under-fits at high rates can be checked in the training column.",
        "Pruned networks are made of the dense network of their seed and fine-tuned: they have "
        "seen more epochs than the dense row.",
    ]
    if {"phew", "viterbi"} & set(settings.rows):
        notes.append(
            "viterbi and PHEW-like walks reach every class, as Trellis does by default "
            "(cover_outputs); the paper's own methods reserve no paths for that."
        )
    if {"synflow", "phew", "lamp"} & set(settings.rows):
        notes.append(
            "SynFlow, PHEW-like walks and LAMP are applied to the trained weights here, like all "
            "others; the first two were proposed for networks before training."
        )
    return notes + exceptions(rows)


def for_table3(rows: Sequence[Summary]) -> list[str]:
    """Return the notes of table 3."""
    return [
        "TC and stochastic, under the global surrogate: Eq. 4 is 1/α = 1, Eq. 5 the others. The "
        "paper's caption says α = 10 and means 1/α = 10.",
        "Of the paper's own figures, the global surrogate beats the local one (73.39) only at "
        "1/α = 10.",
        *exceptions(rows),
    ]


def exceptions(rows: Sequence[Summary]) -> list[str]:
    """Return the notes about disconnected networks and rows that could not be pruned."""
    found = []
    if any(row.disconnected > 0 for row in rows):
        found.append(
            "A disconnected network has no path left and gives every recording the same class. "
            "Where all networks of a row are, accuracies are NA; where some are, they count."
        )
    found += [f"{row.row.key}: not possible: {row.refused}" for row in rows if row.refused]
    return found
