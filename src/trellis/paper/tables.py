"""The three tables, made of the cells that a run has stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from . import render as notes
from .folder import Folder, Record
from .plan import Row, architecture_of, plan_of
from .published import DENSE_ACCURACY, PARAMETERS, TABLE1, TABLE2, TABLE3, TABLE3_RATE, Cell
from .settings import Data, Settings, is_benchmark, paper_rate


@dataclass(frozen=True)
class Figure:
    """A mean over seeds and the standard deviation, which is None for one seed.

    >>> print(Figure.of([80.0, 82.0]))
    81.00 ± 1.41
    >>> print(Figure.of([80.0]))
    80.00
    """

    mean: float
    deviation: float | None
    decimals: int = 2

    @classmethod
    def of(cls, values: Sequence[float], decimals: int = 2) -> Figure:
        """Return the mean and the sample standard deviation of values."""
        mean = math.fsum(values) / len(values)
        if len(values) < 2:
            return cls(mean, None, decimals)
        square = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return cls(mean, math.sqrt(square), decimals)

    def parts(self) -> tuple[str, str]:
        """Return mean and deviation as text."""
        deviation = "" if self.deviation is None else f"{self.deviation:,.{self.decimals}f}"
        return f"{self.mean:,.{self.decimals}f}", deviation

    def __str__(self) -> str:
        mean, deviation = self.parts()
        return f"{mean} ± {deviation}" if deviation else mean


@dataclass(frozen=True)
class Summary:
    """The figures of a row; accuracies and ``live`` are in percent, and None if unknown.

    Args:
        row: The row.
        networks: Networks finished.
        wanted: Networks in all.
        disconnected: Finished networks without any path.
        refused: The error message if pruning was not possible.
        kept: Connections kept.
        live: Live connections among them.
        top1: Top-1 accuracy on the test recordings.
        mean_class: Mean accuracy over classes.
        train: Top-1 accuracy on the training recordings.
        lone: Top-1 accuracy on the test recordings of the fold shown alone (`lone_fold`).
    """

    row: Row
    networks: int
    wanted: int
    disconnected: int
    refused: str | None
    kept: Figure | None = None
    live: Figure | None = None
    top1: Figure | None = None
    mean_class: Figure | None = None
    train: Figure | None = None
    lone: Figure | None = None

    @property
    def severed(self) -> bool:
        """Whether all finished networks of the row are disconnected."""
        return self.networks > 0 and self.disconnected == self.networks


def lone_fold(settings: Settings, data: Data) -> int | None:
    """Return the number of the fold that is also shown alone: SBU's fifth."""
    name = {"sbu": "fold 5"}.get(settings.data.partition(":")[0])
    return data.folds.index(name) if len(data.folds) > 1 and name in data.folds else None


def summary(
    row: Row, records: Mapping[str, Record], seeds: int, data: Data, lone: int | None = None
) -> Summary:
    """Return the figures of a row over the seeds whose folds are all finished.

    With ``lone``, also the top-1 accuracy of that fold alone.
    """
    mine = [record for record in records.values() if record["row"] == row.key]
    refused = next((record["refused"] for record in mine if "refused" in record), None)
    networks = [record for record in mine if "refused" not in record]
    whole = [
        found
        for seed in range(seeds)
        if len(found := [r for r in networks if r["seed"] == seed]) == len(data.folds)
    ]
    plain = Summary(
        row,
        networks=len(networks),
        wanted=seeds * len(data.folds),
        disconnected=sum(record["live"] == 0 for record in networks),
        refused=refused,
    )
    if not whole:
        return plain

    def over(value: Callable[[Record], float], decimals: int = 2) -> Figure:
        return Figure.of([_over_folds(found, value) for found in whole], decimals)

    kept = over(lambda r: r["kept"], 0)
    return Summary(
        row,
        plain.networks,
        plain.wanted,
        plain.disconnected,
        refused,
        kept=Figure(kept.mean, kept.deviation or None, 0),  # a count that never varies is a count
        live=_not_all(over(lambda r: 100 * r["live"] / r["kept"] if r["kept"] else 0.0, 1)),
        top1=over(lambda r: 100 * r["correct"] / r["test"]),
        mean_class=over(lambda r: 100 * r["mean_class"]),
        train=over(lambda r: 100 * r["train_correct"] / r["train"]),
        lone=None
        if lone is None
        else Figure.of(
            [100 * r["correct"] / r["test"] for s in whole for r in s if r["fold"] == lone]
        ),
    )


def _not_all(live: Figure) -> Figure:
    """Limit a mean below 100 to 99.9, because 100.0 would say that nothing is dead.

    >>> print(_not_all(Figure(99.97, None, 1)), _not_all(Figure(100.0, None, 1)))
    99.9 100.0
    """
    return replace(live, mean=min(live.mean, 99.9)) if live.mean < 100 else live


def _over_folds(found: Sequence[Record], value: Callable[[Record], float]) -> float:
    """Return the mean over a seed's folds, weighted by their test recordings."""
    tests = sum(int(record["test"]) for record in found)
    return math.fsum(value(record) * record["test"] for record in found) / tests


Value = str | Figure | None  # None: unknown or not applicable; shown as a dash


@dataclass(frozen=True)
class Column:
    """A column of a report.

    Args:
        name: Its heading.
        figures: Whether it holds means and deviations, which are two columns in CSV.
        words: Whether it holds text, which is aligned left.
    """

    name: str
    figures: bool = False
    words: bool = False


@dataclass(frozen=True)
class Line:
    """A row of a report; ``rule`` draws a line above it, ``strong`` emphasizes it."""

    values: tuple[Value, ...]
    rule: bool = False
    strong: bool = False


@dataclass(frozen=True)
class Report:
    """A table with its warnings, facts and notes, before it is written in any format."""

    title: str
    data: str
    synthetic: bool
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    warnings: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = field(default=())


def shown(value: Value) -> str:
    """Return the text of a value.

    >>> shown(None), shown("yes"), shown(Figure(1.5, 0.25))
    ('–', 'yes', '1.50 ± 0.25')
    """
    return "–" if value is None else str(value)


def facts(folder: Folder) -> tuple[tuple[str, str], ...]:
    """Return the facts of a run: data, network, recipe, hardware, versions and command."""
    settings, data = folder.settings, folder.data
    devices = list(dict.fromkeys(record["device"] for record in folder.records.values()))
    versions = ", ".join(f"{name} {number}" for name, number in folder.versions.items())
    return (
        ("Data", data_in_words(settings, data)),
        ("Network", _network(settings, data)),
        ("Recipe", _recipe(settings)),
        ("Seeds", f"{settings.seeds} (0 to {settings.seeds - 1})" if settings.seeds > 1 else "0"),
        ("Precision", settings.precision),
        ("Hardware", "; ".join(devices) or "–"),
        ("Versions", versions),
        ("Command", settings.command()),
    )


def data_in_words(settings: Settings, data: Data) -> str:
    """Return a description of the recordings."""
    kind = "SYNTHETIC, " if data.synthetic else ""
    folds = f"{len(data.folds)} folds" if len(data.folds) > 1 else "one split"
    named = f", protocol {settings.protocol}" if settings.protocol else ""
    left_out = f", {data.left_out:,} left out" if data.left_out else ""
    return (
        f"{settings.data}: {kind}{data.recordings:,} recordings{left_out}, {data.frames:,} frames, "
        f"{data.joints} joints, {data.classes} classes{named}; {folds}: "
        f"{_counts(data.train)} to train on, {_counts(data.test)} to test on"
    )


def _counts(counts: tuple[int, ...]) -> str:
    """Return numbers as text.

    >>> _counts((600,)), _counts((56, 57, 56))
    ('600', '56, 57, 56')
    """
    return ", ".join(f"{count:,}" for count in counts)


def _network(settings: Settings, data: Data) -> str:
    architecture = architecture_of(settings, data)
    blocks = "" if settings.blocks == 1 else f", {settings.blocks} blocks"
    shared = ", one convolution for all heads" if settings.shared else ""
    return (
        f"GCN, {settings.heads} heads, {settings.filters} filters, {settings.chunks} chunks"
        f"{blocks}{shared}: {architecture.connections:,} weights"
    )


def _recipe(settings: Settings) -> str:
    recipe = settings.recipe
    extras = [
        f"{name} {value:g}"
        for name, value in (
            ("weight decay", recipe.decay),
            ("label smoothing", recipe.smoothing),
            ("input noise", recipe.noise),
        )
        if value
    ]
    return ", ".join(
        [
            f"{recipe.name}: Adam, "
            + ("full batch" if recipe.batch is None else f"batches of at most {recipe.batch}"),
            f"{recipe.epochs:,} epoch{'s' * (recipe.epochs != 1)} from a rate of {recipe.rate:g}",
            f"after pruning {recipe.tune_epochs:,} from {recipe.tune_rate:g}",
            f"schedule {recipe.schedule}",
            *extras,
        ]
    )


YES, NO = "yes", "no"


def report_of(folder: Folder) -> Report:
    """Return the table of a run, made of the cells finished so far."""
    settings, data = folder.settings, folder.data
    plan = plan_of(settings, data)
    lone = lone_fold(settings, data)
    rows = [summary(row, folder.records, settings.seeds, data, lone) for row in plan.rows]
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
            notes.inputs(settings),
            *([] if lone is None else [notes.lone(settings, data, lone)]),
            *own,
        ),
    )


_Made = tuple[str, tuple[Column, ...], tuple[Line, ...], list[str]]


def _published(folder: Folder, what: str) -> str:
    """Return the heading of a column with the paper's figures; it names FPHA on other data."""
    return (
        f"paper: {what}" if is_benchmark(folder.settings, folder.data) else f"FPHA, paper: {what}"
    )


def _accuracies(folder: Folder, row: Summary) -> tuple[Value, ...]:
    """Return the values of the columns of `_measured`."""
    alone = () if lone_fold(folder.settings, folder.data) is None else (row.lone,)
    values = (row.top1, row.mean_class, row.train, *alone)
    return ("NA",) * len(values) if row.severed else values


def _measured(folder: Folder) -> tuple[Column, ...]:
    names = ["top-1 (%)", "mean-class (%)", "training (%)"]
    lone = lone_fold(folder.settings, folder.data)
    if lone is not None:
        names.append(f"{folder.data.folds[lone]}: top-1 (%)")
    return tuple(Column(name, figures=True) for name in names)


def _table1(folder: Folder, rows: list[Summary]) -> _Made:
    columns = (
        Column("method", words=True),
        Column("color"),
        Column("depth"),
        Column("pose"),
        Column(_published(folder, "accuracy (%)")),
        *_measured(folder),
    )
    lines = [
        Line(
            (
                known.method,
                *(YES if seen else NO for seen in (known.color, known.depth, known.pose)),
                f"{known.accuracy:.2f}",
                *[None] * len(_measured(folder)),
            ),
            rule=i == 0 and group is not TABLE1[0],
        )
        for group in TABLE1
        for i, known in enumerate(group)
    ]
    where = "" if is_benchmark(folder.settings, folder.data) else f", on {folder.settings.data}"
    ours = (f"Dense GCN, measured here{where}", NO, NO, YES, None, *_accuracies(folder, rows[0]))
    lines.append(Line(ours, rule=True, strong=True))
    return "Table 1: the dense GCN among published methods", columns, tuple(lines), []


def _table2(folder: Folder, rows: list[Summary]) -> _Made:
    columns = (
        Column("rate (%)"),
        Column("TC"),
        Column("stochastic"),
        Column("kept", figures=True),
        Column("live (%)", figures=True),
        *_measured(folder),
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
            *_accuracies(folder, row),
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
    """Return the method's name, and whether networks are disconnected or missing."""
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
        *_measured(folder),
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
        values = (name, row.kept, row.live, *_accuracies(folder, row), paper, seen)
        lines.append(Line(values, rule=alpha is not None and len(lines) == 1, strong=True))
    title = f"Table 3: the global surrogate at {rate:g} %, by 1/α"
    dense = rows[0].top1
    own = notes.for_table3(rows)
    if isinstance(dense, Figure):
        own = [f"The dense network these are pruned from: top-1 {dense} %.", *own]
    return title, columns, tuple(lines), own
