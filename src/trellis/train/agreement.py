"""Recordings that a step sees twice, and networks that are to say the same of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import TrellisError
from .batches import batches_of, shuffled


@dataclass(frozen=True)
class Agreement:
    """Draws together what a network says of two variants of one recording.

    Steps are as large as ever, but see half as many recordings, each of them twice (`indices`);
    what feeds a training makes another variant of it each time. To the loss comes ``weight`` times
    how far the two answers are apart (`losses`), so that a network learns what its variants have in
    common, not how to answer for each of them.
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        number = isinstance(self.weight, int | float) and not isinstance(self.weight, bool)
        if not (number and 0 < self.weight < math.inf):
            raise TrellisError(f"agreement={self.weight!r} is not a finite number above 0")

    def indices(self, recordings: int, most: int | None, epoch: int) -> list[Tensor]:
        """The batches of an epoch, as large as `batch_indices` makes them: some of the recordings,
        the same again in the same order, and where a batch is odd one more.

        >>> [batch.tolist() for batch in Agreement().indices(10, 5, epoch=3)]
        [[6, 0, 6, 0, 8], [5, 1, 5, 1, 4]]
        """
        found = []
        for batch in batches_of(shuffled(recordings, epoch), most):
            half = len(batch) // 2
            found.append(torch.cat([batch[:half], batch[:half], batch[2 * half :]]))
        return found

    def losses(self, logits: Tensor) -> Tensor:
        """(networks, batch, classes) -> (networks,): how far apart the answers to the two variants
        of a recording are, on average: the mean of both divergences, of each from the other.

        >>> once = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
        >>> Agreement().losses(torch.stack([torch.cat([once, once]), torch.cat([once, -once])]))
        tensor([0.0000, 0.7616])
        """
        half = logits.shape[1] // 2
        first, second = (
            F.log_softmax(part, 2) for part in (logits[:, :half], logits[:, half : 2 * half])
        )
        both = (first.exp() - second.exp()) * (first - second)
        return both.sum((1, 2)) / (2 * max(half, 1))

    def to_dict(self) -> dict[str, Any]:
        """What the result depends on, as JSON holds it."""
        return {"weight": self.weight}
