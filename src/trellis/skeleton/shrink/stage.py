"""One training of a course: of networks as they are, or of what masks leave of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


class Stage(NamedTuple):
    """A training, of networks as they are or of ``narrow`` ones."""

    training: Training
    narrow: Narrow | None

    def whole(self, stack: Mapping[str, Tensor], which: Sequence[int] | None = None) -> Weights:
        """Its weights or masks, as those of networks as they are; of some of them, if so told."""
        found = dict(stack) if self.narrow is None else self.narrow.whole(stack)
        return found if which is None else {name: each[which] for name, each in found.items()}

    def taken(self, before: Stage, which: Sequence[int], stack: Mapping[str, Tensor]) -> Weights:
        """Weights or masks of a stage ``before``, as this one has them."""
        found = before.whole(stack, which)
        return found if self.narrow is None else self.narrow.narrow(found)
