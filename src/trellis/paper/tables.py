"""The three tables, from what a run has stored."""

from __future__ import annotations

from . import notes
from .facts import facts
from .figures import Figure, Summary, summary
from .folder import Folder
from .plan import plan_of
from .published import DENSE_ACCURACY, PARAMETERS, TABLE1, TABLE2, TABLE3, TABLE3_RATE, Cell
from .report import Column, Line, Report, Value
from .settings import is_benchmark, paper_rate

YES, NO = "yes", "no"


def report_of(folder: Folder) -> Report:
    """The table that a run is for, as far as it has come."""
    settings, data = folder.settings, folder.data
    plan = plan_of(settings, data)
    rows = [summary(row, folder.records, settings.seeds, data) for row in plan.rows]
    missing = sum(cell.key not in folder.records for cell in plan.cells)
    title, columns, lines, own = {"table1": _table1, "table2": _table2, "table3": _table3}[
        settings.table
    ](folder, rows)
    return Report(
        title,
        settings.data,
        data.synthetic,
        columns,
        lines,
        notes.warnings(settings, data, missing, len(plan.cells)),
        facts(folder),
        (
            notes.spread(settings, data),
            notes.accuracy(settings, data),
            notes.size(settings, data),
            notes.training(settings),
            *own,
        ),
    )


_Made = tuple[str, tuple[Column, ...], tuple[Line, ...], list[str]]


def _published(folder: Folder, what: str) -> str:
    """The head of a column of the paper's: no reader may take it for this data's."""
    return (
        f"paper: {what}" if is_benchmark(folder.settings, folder.data) else f"FPHA, paper: {what}"
    )


def _accuracies(row: Summary) -> tuple[Value, Value, Value]:
    if row.severed:
        return "NA", "NA", "NA"
    return row.top1, row.mean_class, row.train


_MEASURED = (
    Column("top-1 (%)", figures=True),
    Column("mean-class (%)", figures=True),
    Column("training (%)", figures=True),
)


def _table1(folder: Folder, rows: list[Summary]) -> _Made:
    columns = (
        Column("method", words=True),
        Column("colour"),
        Column("depth"),
        Column("pose"),
        Column(_published(folder, "accuracy (%)")),
        *_MEASURED,
    )
    lines = [
        Line(
            (
                known.method,
                *(YES if seen else NO for seen in (known.colour, known.depth, known.pose)),
                f"{known.accuracy:.2f}",
                None,
                None,
                None,
            ),
            rule=i == 0 and group is not TABLE1[0],
        )
        for group in TABLE1
        for i, known in enumerate(group)
    ]
    where = "" if is_benchmark(folder.settings, folder.data) else f", on {folder.settings.data}"
    ours = (f"Dense GCN, measured here{where}", NO, NO, YES, None, *_accuracies(rows[0]))
    lines.append(Line(ours, rule=True, strong=True))
    return "Table 1: the dense GCN among published methods", columns, tuple(lines), []


def _table2(folder: Folder, rows: list[Summary]) -> _Made:
    columns = (
        Column("rate (%)"),
        Column("TC"),
        Column("stochastic"),
        Column("kept", figures=True),
        Column("live (%)", figures=True),
        *_MEASURED,
        Column(_published(folder, "kept")),
        Column(_published(folder, "live (%)")),
        Column(_published(folder, "accuracy (%)")),
        Column("observation", words=True),
    )
    lines: list[Line] = []
    last = 0.0
    for row in rows:
        method, rate = row.row.method, row.row.rate
        if method is None:
            paper: Cell | None = Cell(PARAMETERS, 100.0, DENSE_ACCURACY)
            kind = ("NA", "NA")
        else:
            paper = TABLE2.get(method.key, {}).get(rate)
            kind = (YES if method.consistent else NO, YES if method.stochastic else NO)
        values = (
            f"{rate:g}",
            *kind,
            row.kept,
            row.live,
            *_accuracies(row),
            *_paper(paper),
            observation(row),
        )
        lines.append(Line(values, rule=rate != last, strong=method is None or method.paper))
        last = rate
    own = notes.for_table2(folder.settings, folder.data, rows)
    return "Table 2: pruning rates and methods", columns, tuple(lines), own


def _paper(cell: Cell | None) -> tuple[Value, Value, Value]:
    if cell is None:
        return None, None, None
    accuracy = "NA" if cell.accuracy is None else f"{cell.accuracy:.2f}"
    return f"{cell.kept:,}", f"{cell.live:.1f}", accuracy


def observation(row: Summary) -> str:
    """The method, and what is unusual about its networks."""
    label = "Baseline GCN" if row.row.method is None else row.row.method.label
    if row.refused is not None:
        return f"{label}: not possible, see below"
    if row.severed:
        return f"{label}: disconnected"
    if row.disconnected:
        return f"{label}: disconnected in {row.disconnected} of {row.networks} networks"
    return label


def _table3(folder: Folder, rows: list[Summary]) -> _Made:
    rate = paper_rate(folder.settings)
    columns = (
        Column("1/α"),
        Column("kept", figures=True),
        Column("live (%)", figures=True),
        *_MEASURED,
        Column(_published(folder, "accuracy (%)")),
        Column("observation", words=True),
    )
    lines: list[Line] = []
    for row in rows[1:]:
        assert row.row.method is not None
        alpha = row.row.method.options.get("inverse_alpha")
        known: float | None = None
        if rate == TABLE3_RATE:
            local = TABLE2["tc-stochastic"][rate].accuracy
            known = local if alpha is None else TABLE3.get(alpha)
        name = "local" if alpha is None else f"{alpha:g}"
        paper = None if known is None else f"{known:.2f}"
        seen = observation(row) if alpha is None or row.disconnected or row.refused else ""
        values = (name, row.kept, row.live, *_accuracies(row), paper, seen)
        lines.append(Line(values, rule=alpha is not None and len(lines) == 1, strong=True))
    title = f"Table 3: the global surrogate at {rate:g} %, by 1/α"
    dense = rows[0].top1
    own = notes.for_table3(rows)
    if isinstance(dense, Figure):
        own = [f"The dense network these are pruned from: top-1 {dense} %.", *own]
    return title, columns, tuple(lines), own
