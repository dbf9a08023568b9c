"""The tables of the benchmark, on the screen and as markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dead import SPARSITIES, Left
from goals import Verdict
from models import NETWORKS
from peers import PEERS

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Table:
    """A titled table of strings.

    >>> print(Table("Birds", ("name", "legs"), (("wren", "2"),)).markdown())
    ## Birds
    <BLANKLINE>
    | name | legs |
    |---|---|
    | wren | 2 |
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        lines = [" | ".join(row) for row in (self.head, *self.rows)]
        lines.insert(1, "|".join("---" for _ in self.head))
        body = [f"| {line} |" if "---" not in line else f"|{line}|" for line in lines]
        return "\n".join([f"## {self.title}", "", *body])

    def rich(self) -> RichTable:
        from rich.table import Table as RichTable

        table = RichTable(*self.head, title=self.title, title_justify="left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def show(self) -> None:
        """Print it; as markdown on a machine without rich."""
        try:
            from rich import print as rich_print
        except ModuleNotFoundError:
            print(self.markdown())
        else:
            rich_print(self.rich())


def goal_table(verdicts: Mapping[str, Sequence[Verdict]]) -> Table:
    """Every goal of every network: what was measured, the limit, met or missed."""
    rows = [
        (
            NETWORKS[network].title,
            verdict.goal,
            f"{verdict.value:.3g}",
            f"{verdict.limit:g}",
            "met" if verdict.met else "MISSED",
        )
        for network, found in verdicts.items()
        for verdict in found
    ]
    return Table("Speed against the goals", ("network", "goal", "measured", "at most", ""), rows)


def time_table(times: Mapping[str, Mapping[str, float]]) -> Table:
    """Median seconds of every task on every network, and the ratio to `global_unstructured`."""
    tasks = list(dict.fromkeys(task for network in times.values() for task in network))
    rows = []
    for task in tasks:
        cells = [task]
        for network in times.values():
            ratio = network.get(task, 0.0) / network["global_unstructured"]
            cells.append(f"{network[task]:.3g} s ({ratio:.2g})" if task in network else "")
        rows.append(cells)
    head = ("task, at 99 % where it prunes", *(NETWORKS[name].title for name in times))
    return Table("Median times (ratio to global_unstructured)", head, rows)


def dead_table(network: str, left: Iterable[Left]) -> Table:
    """Share of kept weights that are dead, and outputs reached, for every tool and sparsity."""
    cells = {(row.peer, row.sparsity): str(row) for row in left if row.network == network}
    peers = list(dict.fromkeys(peer for peer, _ in cells))
    rows = [
        (PEERS[peer].title, *(cells.get((peer, sparsity), "") for sparsity in SPARSITIES))
        for peer in peers
    ]
    head = ("tool", *(f"{100 * sparsity:g} %" for sparsity in SPARSITIES))
    return Table(f"{NETWORKS[network].title}: dead weights, outputs reached", head, rows)


def refusals(left: Iterable[Left]) -> list[str]:
    """Why a cell says "cannot", once for each tool and network."""
    reasons = {
        (row.peer, row.network): f"{PEERS[row.peer].title}, {NETWORKS[row.network].title}: "
        f"{row.refusal}"
        for row in left
        if row.refusal
    }
    return list(reasons.values())


def show(tables: Sequence[Table], notes: Sequence[str], machine: Mapping[str, object]) -> str:
    """Print the tables, and return the page that holds them."""
    for table in tables:
        table.show()
    for note in notes:
        print(f"- {note}")
    facts = ", ".join(f"{name} {value}" for name, value in machine.items())
    parts = ["# Pruning: speed, and what is left dead", f"Measured with {facts}."]
    parts += [table.markdown() for table in tables]
    if notes:
        parts.append("\n".join(['Where a cell says "cannot":', "", *(f"- {n}" for n in notes)]))
    return "\n\n".join(parts) + "\n"
