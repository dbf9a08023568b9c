"""How well a network tells classes apart, and which it takes for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Confusion:
    """``count`` of the ``of`` recordings of one class were taken for another."""

    truth: str
    taken_for: str
    count: int
    of: int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A confusion matrix, (classes, classes): rows are what is, columns what was said.

    >>> found = Evaluation.of(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), ["wave", "point"])
    >>> found.top1, found.mean_class
    (0.75, 0.75)
    >>> found.confusions()
    [Confusion(truth='wave', taken_for='point', count=1, of=2)]
    """

    classes: tuple[str, ...]
    matrix: Integers

    @classmethod
    def of(cls, labels: Integers, said: Integers, classes: Sequence[str]) -> Evaluation:
        """From the class of each recording and the class that was said."""
        count = len(classes)
        cells = np.bincount(labels * count + said, minlength=count * count)
        return cls(tuple(classes), cells.reshape(count, count).astype(np.int64))

    @property
    def recordings(self) -> int:
        return int(self.matrix.sum())

    @property
    def top1(self) -> float:
        """The share of recordings that are named right."""
        return float(np.trace(self.matrix) / self.matrix.sum())

    @property
    def counts(self) -> Integers:
        """Recordings of each class."""
        return self.matrix.sum(axis=1)  # type: ignore[no-any-return]

    @property
    def mean_class(self) -> float:
        """The mean of the classes' own shares; a class without recordings has none."""
        seen = self.counts > 0
        return float((np.diag(self.matrix)[seen] / self.counts[seen]).mean())

    def accuracy(self, label: int) -> float | None:
        """The share of the recordings of one class that are named right."""
        count = int(self.counts[label])
        return int(self.matrix[label, label]) / count if count else None

    def confusions(self) -> list[Confusion]:
        """Which class is taken for which, most often first; then the larger share of its class."""
        rows, columns = np.nonzero(self.matrix * (1 - np.eye(len(self.classes), dtype=np.int64)))
        found = [
            Confusion(
                self.classes[row],
                self.classes[column],
                int(self.matrix[row, column]),
                int(self.counts[row]),
            )
            for row, column in zip(rows, columns, strict=True)
        ]
        return sorted(found, key=lambda c: (-c.count, -c.count / c.of, c.truth, c.taken_for))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "recordings": self.recordings,
            "top1": self.top1,
            "mean_class": self.mean_class,
            "classes": [
                {"name": name, "recordings": int(self.counts[i]), "accuracy": self.accuracy(i)}
                for i, name in enumerate(self.classes)
            ],
            "confusions": [vars(confusion) for confusion in self.confusions()],
        }
