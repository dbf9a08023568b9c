"""A report as CSV: figures as plain numbers, mean and deviation in columns of their own."""

from __future__ import annotations

import csv
import io

from ..figures import Figure
from ..report import Column, Report, Value
from .plain import one_line


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
