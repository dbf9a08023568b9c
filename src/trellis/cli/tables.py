"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.box import HORIZONTALS
from rich.console import Console
from rich.table import Table

from trellis.cli.aside import Screen
from trellis.paths.audit import Audit

NAME = 16  # the narrowest that a column of names may get


def console() -> Console:
    """On stdout. In a pipe or a log, as wide as the table is: nothing there is cut or folded."""
    found = Screen(file=sys.stdout, highlight=False, emoji=False, markup=False)
    if not found.is_terminal:
        found.width = 1000
    return found


def table(head: list[str], *, words: int = 1) -> Table:
    """A table whose first ``words`` columns are text and whose others are numbers."""
    made = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, header_style="bold")
    made.add_column(head[0], overflow="fold", min_width=min(NAME, len(head[0])))
    for place, name in enumerate(head[1:], 1):
        made.add_column(name, justify="left" if place < words else "right", no_wrap=True)
    return made


def show(made: Table, out: Console) -> None:
    """Print a table. Where the terminal is narrow names fold, but no digit is ever cut."""
    longest = max((len(str(cell)) for cell in made.columns[0].cells), default=0)
    whole = out.measure(made, options=out.options.update(max_width=1000)).minimum
    out.width = max(out.width, whole - max(longest - NAME, 0))
    out.print(made)


def print_audit(audit: Audit) -> None:
    """The audit's table, its summary and its words."""
    out = console()
    head, *layers, whole = audit.rows()
    made = table(head, words=2)
    for cells, layer in zip(layers, audit.layers, strict=True):
        made.add_row(*cells, style="red" if layer.dead or not layer.kept else "")
    made.add_section()
    made.add_row(*whole, style="bold")
    show(made, out)
    out.print()
    # The text of print(audit) after its table: one wording everywhere.
    out.print(str(audit).split("\n\n", 1)[1], soft_wrap=True)


def print_change(before: Audit, after: Audit) -> None:
    """A row per layer: what was kept and live before, and is now."""
    old = {layer.name: layer for layer in before.layers}
    head = ["layer", "shape", "connections", "kept before", "kept", "live", "dead"]
    made = table(head, words=2)
    for layer in after.layers:
        counts = (layer.total, old[layer.name].kept, layer.kept, layer.live, layer.dead)
        shape = "x".join(map(str, layer.shape))
        style = "red" if layer.dead or not layer.kept else ""
        made.add_row(layer.name, shape, *(f"{n:,}" for n in counts), style=style)
    made.add_section()
    sums = (after.total, before.kept, after.kept, after.live, after.dead)
    made.add_row("whole", "", *(f"{n:,}" for n in sums), style="bold")
    out = console()
    show(made, out)
    out.print()
    for when, audit in (("before", before), ("after", after)):
        out.print(
            f"{when}: {audit.kept:,} kept, {audit.live:,} live ({percent(audit.live_fraction)}), "
            f"outputs reached: {audit.outputs_reached:,} of {audit.outputs:,}",
            soft_wrap=True,
        )
    for text in after.words():
        out.print(f"- {text}", soft_wrap=True)


def print_json(value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2, allow_nan=False)
    print(text.replace("\x7f", "\\u007f"))  # the one control character that JSON leaves as it is


def percent(fraction: float) -> str:
    """Percent to one place. All is 100 % and none is 0 %, and nothing else is.

    >>> percent(0.42), percent(0.06957), percent(1.0), percent(0.0)
    ('42.0 %', '7.0 %', '100.0 %', '0.0 %')
    >>> percent(0.99999), percent(0.00001)
    ('> 99.9 %', '< 0.1 %')
    """
    shown = f"{100 * fraction:.1f} %"
    if fraction < 1 and shown == "100.0 %":
        return "> 99.9 %"
    return "< 0.1 %" if fraction > 0 and shown == "0.0 %" else shown
