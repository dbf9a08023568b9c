"""One training of a course: where it begins, and of what, all of networks or what masks leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from ...train import Training, Weights
from ..narrow import Narrow


class Start(NamedTuple):
    """Where networks are when their pruning begins: ``kept`` connections of each, those of
    ``masks``, or all of them."""

    weights: Weights
    masks: Weights | None = None
    kept: int | None = None


class Kind(NamedTuple):
    """How a network is made: by how many ``teachers`` it is taught, how many connections the
    ``waypoint`` has from which it goes on (0 if that is the dense network), and the weight of its
    ``agreement`` with itself.

    >>> Kind(0).name, Kind(4).name, Kind(1, 2_139).name, Kind(0, agreement=1.0).name
    ('', 'taught', 'from 2139', 'agreeing')
    """

    teachers: int
    waypoint: int = 0
    agreement: float = 0.0

    @property
    def name(self) -> str:
        """What its phases are called, beside those of other kinds."""
        if self.waypoint:
            return f"from {self.waypoint}"
        if self.teachers:
            return "taught"
        return "agreeing" if self.agreement else ""


class Stage(NamedTuple):
    """A training, of networks as they are or of ``narrow`` ones."""

    training: Training
    narrow: Narrow | None

    def whole(self, stack: Mapping[str, Tensor]) -> Weights:
        """Its weights or masks, as those of networks as they are."""
        return dict(stack) if self.narrow is None else self.narrow.whole(stack)

    def taken(self, before: Stage, stack: Mapping[str, Tensor]) -> Weights:
        """Weights or masks of a stage ``before``, as this one has them."""
        found = before.whole(stack)
        return found if self.narrow is None else self.narrow.narrow(found)
