"""Learning rates over time, one for every network of a stack."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FACTOR = 0.99
_LEAST, _MOST = 0.01, 10.0  # of the first rate


def cosine(first: float, step: int, steps: int) -> float:
    """From ``first`` at step 0 down to nothing at ``steps``.

    >>> [round(cosine(1.0, step, 4), 2) for step in range(5)]
    [1.0, 0.85, 0.5, 0.15, 0.0]
    """
    return first * 0.5 * (1 + math.cos(math.pi * step / steps))


class SpeedRule:
    """The paper's rule: slower while the loss changes faster and faster.

    Where the speed |loss − last loss| grew, the network's rate is multiplied by 0.99, else
    divided by it. Everything is (networks,) and in place, so that a graph can be captured.

    >>> rates = torch.tensor([1.0])
    >>> rule = SpeedRule(rates, first=1.0)
    >>> for loss in (4.0, 3.0, 1.0):    # speeds: none yet, 1, 2
    ...     rule.step(torch.tensor([loss]))
    >>> round(rates.item(), 4)
    0.99
    """

    def __init__(self, rates: Tensor, first: float) -> None:
        self.rates = rates
        self.first = first
        self.loss = torch.full_like(rates, math.nan)
        self.speed = torch.full_like(rates, math.nan)

    def step(self, loss: Tensor) -> None:
        speed = (loss - self.loss).abs()
        known = ~(self.speed.isnan() | speed.isnan())
        grew = torch.where(speed > self.speed, _FACTOR, 1 / _FACTOR)
        self.rates.mul_(torch.where(known, grew, 1.0).to(self.rates.dtype))
        self.rates.clamp_(_LEAST * self.first, _MOST * self.first)
        self.speed.copy_(speed)
        self.loss.copy_(loss)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        return {"loss": self.loss, "speed": self.speed}
