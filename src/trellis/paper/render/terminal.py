"""A report for a terminal, and as plain text."""

from __future__ import annotations

import io

from rich.box import HORIZONTALS
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..report import Report, shown
from .plain import one_line


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
