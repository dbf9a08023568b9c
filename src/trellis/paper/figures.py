"""The figures of a row: means and standard deviations over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .folder import Record
from .plan import Row
from .settings import Data


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

    @property
    def severed(self) -> bool:
        """Whether all finished networks of the row are disconnected."""
        return self.networks > 0 and self.disconnected == self.networks


def summary(row: Row, records: Mapping[str, Record], seeds: int, data: Data) -> Summary:
    """Return the figures of a row over the seeds whose folds are all finished."""
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
