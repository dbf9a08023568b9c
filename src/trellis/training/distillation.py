"""Distillation: networks that learn from others as well as from labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import TrellisError
from .stacks import Forward, Weights


def check_teaching(weight: float, temperature: float) -> None:
    """Refuse a share of the loss, or a temperature, that is none."""
    if not 0 <= weight <= 1:
        raise TrellisError(f"weight={weight!r} of the teachers is not from 0 to 1")
    if not 1e-3 <= temperature <= 1e3:
        raise TrellisError(
            f"expected a temperature from 0.001 to 1,000, got temperature={temperature!r}"
        )


@dataclass(frozen=True, eq=False)
class Teachers:
    """One or several trained networks, a stack of their own; what they say is averaged.

    ``weight`` is the share of the loss that comes from them rather than from the labels;
    ``temperature`` flattens their answers, so that the lesser ones are heard too. All of them teach
    every network of a stack; if they are its ``own``, there are as many for each, in its order:
    those of the first network come first.
    """

    forward: Forward
    weights: Weights
    weight: float = 0.7
    temperature: float = 2.0
    own: bool = False

    def __post_init__(self) -> None:
        check_teaching(self.weight, self.temperature)

    @property
    def count(self) -> int:
        return len(next(iter(self.weights.values())))

    @torch.no_grad()
    def say(self, inputs: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(networks, batch, …) -> (networks, batch, classes), probabilities at the temperature.

        Every network is taught on the inputs that it sees itself, noise and all.
        """
        networks, batch = inputs.shape[:2]
        count = self.count
        if self.own:
            each = (networks, count // networks, *inputs.shape[1:])
            given = inputs[:, None].expand(each).flatten(0, 1)
        else:
            flat = inputs.flatten(0, 1)
            given = flat.expand(count, *flat.shape)
        logits = self.forward(self.weights, given)
        heard = F.softmax(logits.to(dtype) / self.temperature, dim=2)
        mean = heard.unflatten(0, (networks, -1)).mean(1) if self.own else heard.mean(0)
        return mean.reshape(networks, batch, -1)

    def losses(self, logits: Tensor, inputs: Tensor) -> Tensor:
        """How far each network is from its teachers, (networks,): the divergence, times the
        square of the temperature so that gradients keep their size."""
        wanted = self.say(inputs, logits.dtype)
        said = F.log_softmax(logits / self.temperature, dim=2)
        divergence = F.kl_div(said, wanted, reduction="none").sum(2).mean(1)
        return divergence * self.temperature**2
