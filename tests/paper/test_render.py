"""Every format, literally; and text that would like to be more than text."""

from __future__ import annotations

import csv
import io
import re

import pytest
from rich.console import Console

from trellis.paper.render import comma, latex, markdown, terminal, text
from trellis.paper.render import escaped_latex as in_latex
from trellis.paper.render import escaped_markdown as in_markdown
from trellis.paper.tables import Column, Figure, Line, Report

REPORT = Report(
    title="Table 2: pruning",
    data="hands45",
    synthetic=True,
    columns=(
        Column("rate (%)"),
        Column("kept", figures=True),
        Column("top-1 (%)", figures=True),
        Column("paper: kept"),
        Column("observation", words=True),
    ),
    lines=(
        Line(("0", Figure(2139.0, None, 0), Figure(86.5, 0.25), "1,967", "Baseline GCN")),
        Line(("90", Figure(213.0, None, 0), "NA", None, "Global MP: disconnected"), rule=True),
    ),
    warnings=("SYNTHETIC DATA: beware.",),
    facts=(("Seeds", "2"), ("Command", "trellis reproduce table2")),
    notes=("One note.", "Another, with 1/α."),
)

MARKDOWN = """\
# Table 2: pruning

> **SYNTHETIC DATA: beware.**

| rate (%) | kept | top-1 (%) | paper: kept | observation |
| ---: | ---: | ---: | ---: | :--- |
| 0 | 2,139 | 86.50 ± 0.25 | 1,967 | Baseline GCN |
| 90 | 213 | NA | – | Global MP: disconnected |

- Seeds: 2
- Command: `trellis reproduce table2`

1. One note.
2. Another, with 1/α.
"""

CSV = """\
data,synthetic,rate (%),kept,kept deviation,top-1 (%),top-1 (%) deviation,paper: kept,observation
hands45,yes,0,2139,,86.50,0.25,1967,Baseline GCN
hands45,yes,90,213,,NA,,,Global MP: disconnected
"""

TEXT = """\
Table 2: pruning

SYNTHETIC DATA: beware.

                                  paper:
rate (%)    kept      top-1 (%)     kept   observation
──────────────────────────────────────────────────────────────────
       0   2,139   86.50 ± 0.25    1,967   Baseline GCN
──────────────────────────────────────────────────────────────────
      90     213             NA        –   Global MP: disconnected

Seeds    2
Command  trellis reproduce table2

1. One note.
2. Another, with 1/α.
"""

LATEX_ROWS = r"""
0 & 2,139 & 86.50 \ensuremath{\pm} 0.25 & 1,967 & Baseline GCN \\
\midrule
90 & 213 & NA & -- & Global MP: disconnected \\
\end{longtable}
"""


def test_markdown() -> None:
    assert markdown(REPORT) == MARKDOWN


def test_csv() -> None:
    assert comma(REPORT) == CSV


def test_text() -> None:
    assert text(REPORT) == TEXT


def test_latex() -> None:
    made = latex(REPORT)
    assert LATEX_ROWS in made
    assert r"\caption{Table 2: pruning, on hands45 (SYNTHETIC DATA).}" in made
    assert r"\begin{longtable}{rrrrl}" in made
    assert r"& \shortstack[r]{paper:\\kept} & observation \\" in made
    assert made.startswith("% Made by trellis") and made.endswith("\\end{document}\n")


HOSTILE = [
    "a|b", "x\ny", "`rm -rf`", "<script>alert(1)</script>", "[link](javascript:x)", "**bold**",
    r"\input{/etc/passwd}", r"\\", "100% & $x^2$ _y_ #1 ~z {", "}", "=cmd|'/c calc'!A0", "+1", "-1",
    "@sum", '"quoted", and more', "\x1b[31mred", "\u202egnp.exe", "\ud800", "[bold]markup[/bold]",
    "日本語", "\t", "",
]  # fmt: skip


def hostile(name: str) -> Report:
    line = Line(("0", Figure(1.0, None), Figure(2.0, 1.0), name, name))
    return Report(name, name, False, REPORT.columns, (line,), (name,), (("Data", name),), (name,))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_cell_of_markdown(name: str) -> None:
    made = markdown(hostile(name))
    rows = [line for line in made.splitlines() if line.startswith("|")]
    assert len(rows) == 3
    for row in rows:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == len(REPORT.columns) + 1
    assert not re.search(r"(?<!\\)(?:\\\\)*[<`\[]", made)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_cell_of_csv(name: str) -> None:
    rows = list(csv.reader(io.StringIO(comma(hostile(name)))))
    assert len(rows) == 2 and len(rows[0]) == len(rows[1]) == 9
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in rows[1])


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_only_text_in_latex(name: str) -> None:
    made = latex(hostile(name))
    bare = re.sub(r"\\[{}%&$#_\\]", "", made)
    assert bare.count("{") == bare.count("}")
    row = next(line for line in bare.splitlines() if line.startswith("0 &"))
    assert row.count("&") == len(REPORT.columns) - 1
    # All commands are ours.
    ours = set(re.findall(r"\\([a-zA-Z]+)", latex(REPORT)))
    symbols = set(re.findall(r"\\([a-zA-Z]+)", in_latex("".join(map(chr, range(33, 127))))))
    assert set(re.findall(r"\\([a-zA-Z]+)", made)) <= ours | symbols


def test_latex_escapes_hold_no_command_but_symbols() -> None:
    assert in_latex(r"\input{x}") == r"\textbackslash{}input\{x\}"
    assert in_latex("50% of $5 & more_") == r"50\% of \$5 \& more\_"
    assert in_latex("日") == "?"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_not_steer_a_terminal(name: str) -> None:
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=200).print(terminal(hostile(name)))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())  # rich's own styles
    assert "\x1b" not in shown and "\u202e" not in shown
    if name == "[bold]markup[/bold]":
        assert name in shown


def test_escaped_markdown_shows_what_it_was() -> None:
    assert re.sub(r"\\(.)", r"\1", in_markdown("a|b *c* <d>")) == "a|b *c* <d>"
