"""What the numbers mean that a listing gives as labels."""

from __future__ import annotations

from ...errors import TrellisError
from .text import shown


class Meanings:
    """Labels and the actions they stand for, one to one, learnt line by line.

    >>> meanings = Meanings()
    >>> meanings.learn(0, "grab", "list:1"); meanings.learn(1, "tap", "list:2")
    >>> meanings.learn(1, "grab", "list:3")
    Traceback (most recent call last):
        ...
    trellis.errors.TrellisError: list:3: label 1 is tap in list:2, and here grab
    >>> meanings.classes()
    ['grab', 'tap']
    """

    def __init__(self) -> None:
        self.actions: dict[int, tuple[str, str]] = {}  # by label, with the place that said so
        self.labels: dict[str, tuple[int, str]] = {}

    def learn(self, label: int, action: str, place: str) -> None:
        """Raise where the line contradicts one before."""
        if self.actions.get(label, (action, ""))[0] != action:
            known, where = self.actions[label]
            raise TrellisError(
                f"{place}: label {label} is {shown(known)} in {where}, and here {shown(action)}"
            )
        if self.labels.get(action, (label, ""))[0] != label:
            other, where = self.labels[action]
            raise TrellisError(
                f"{place}: {shown(action)} has the label {other} in {where}, and here {label}"
            )
        self.actions.setdefault(label, (action, place))
        self.labels.setdefault(action, (label, place))

    def classes(self, first: int = 0) -> list[str]:
        """By label, from ``first`` to the largest; one that nobody named is its number."""
        last = max(self.actions, default=first - 1)
        return [self.actions.get(n, (str(n), ""))[0] for n in range(first, last + 1)]
