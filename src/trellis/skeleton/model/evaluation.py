"""Accuracy and confusions of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Confusion:
    """A confusion: ``count`` of ``of`` recordings of class ``truth`` were predicted as another."""

    truth: str
    taken_for: str
    count: int
    of: int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A confusion matrix (classes, classes): rows are true classes, columns predictions.

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
        """Return the evaluation of predictions ``said`` for recordings with these labels."""
        count = len(classes)
        cells = np.bincount(labels * count + said, minlength=count * count)
        return cls(tuple(classes), cells.reshape(count, count).astype(np.int64))

    @property
    def recordings(self) -> int:
        """The number of recordings."""
        return int(self.matrix.sum())

    @property
    def top1(self) -> float:
        """The share of recordings that are predicted correctly."""
        return float(np.trace(self.matrix) / self.matrix.sum())

    @property
    def counts(self) -> Integers:
        """The number of recordings of each class."""
        return self.matrix.sum(axis=1)  # type: ignore[no-any-return]

    @property
    def mean_class(self) -> float:
        """The mean accuracy over classes that have recordings."""
        seen = self.counts > 0
        return float((np.diag(self.matrix)[seen] / self.counts[seen]).mean())

    def accuracy(self, label: int) -> float | None:
        """Return the accuracy of one class; None if it has no recordings."""
        count = int(self.counts[label])
        return int(self.matrix[label, label]) / count if count else None

    def confusions(self) -> list[Confusion]:
        """Return all confusions, most frequent first, then by their share of the class."""
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
        """Return the figures as JSON can hold them."""
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
