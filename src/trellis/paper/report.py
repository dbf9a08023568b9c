"""A table before it is written in any format."""

from __future__ import annotations

from dataclasses import dataclass, field

from .figures import Figure

Value = str | Figure | None  # None: not there yet, or not applicable; shown as a dash


@dataclass(frozen=True)
class Column:
    """``figures`` columns hold a mean and a deviation, which CSV keeps apart. ``words`` are
    written from the left."""

    name: str
    figures: bool = False
    words: bool = False


@dataclass(frozen=True)
class Line:
    """A row of a report; ``rule`` draws a line above it, ``strong`` sets it off."""

    values: tuple[Value, ...]
    rule: bool = False
    strong: bool = False


@dataclass(frozen=True)
class Report:
    """``facts`` say what was measured and how; ``warnings`` must be read before any figure."""

    title: str
    data: str
    synthetic: bool
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    warnings: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = field(default=())


def shown(value: Value) -> str:
    """
    >>> shown(None), shown("yes"), shown(Figure(1.5, 0.25))
    ('–', 'yes', '1.50 ± 0.25')
    """
    return "–" if value is None else str(value)
