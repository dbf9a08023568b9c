"""Distillation: networks that learn from others as well as from labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import TrellisError
from .stacked import Forward, Weights


@dataclass(frozen=True, eq=False)
class Teachers:
    """One or several trained networks, a stack of their own; what they say is averaged.

    ``weight`` is the share of the loss that comes from them rather than from the labels;
    ``temperature`` flattens their answers, so that the lesser ones are heard too.
    """

    forward: Forward
    weights: Weights
    weight: float = 0.7
    temperature: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise TrellisError(f"weight={self.weight!r} of the teachers is not from 0 to 1")
        if not 0 < self.temperature < float("inf"):
            raise TrellisError(f"temperature={self.temperature!r} is not a finite number above 0")

    @torch.no_grad()
    def say(self, inputs: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(networks, batch, …) -> (networks, batch, classes), probabilities at the temperature.

        Every network is taught on the inputs that it sees itself, noise and all.
        """
        networks, batch = inputs.shape[:2]
        count = len(next(iter(self.weights.values())))
        flat = inputs.flatten(0, 1)
        logits = self.forward(self.weights, flat.expand(count, *flat.shape))
        heard = F.softmax(logits.to(dtype) / self.temperature, dim=2).mean(0)
        return heard.reshape(networks, batch, -1)

    def losses(self, logits: Tensor, inputs: Tensor) -> Tensor:
        """How far each network is from its teachers, (networks,): the divergence, times the
        square of the temperature so that gradients keep their size."""
        wanted = self.say(inputs, logits.dtype)
        said = F.log_softmax(logits / self.temperature, dim=2)
        divergence = F.kl_div(said, wanted, reduction="none").sum(2).mean(1)
        return divergence * self.temperature**2
