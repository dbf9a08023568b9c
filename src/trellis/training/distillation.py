"""Distillation: a stack of networks learns from trained ones as well as from labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import TrellisError
from .stacks import Forward, Weights


def check_distillation(weight: float, temperature: float) -> None:
    """Raise if the share of the loss or the temperature is out of range."""
    if not 0 <= weight <= 1:
        raise TrellisError(f"expected a teacher weight from 0 to 1, got weight={weight!r}")
    if not 1e-3 <= temperature <= 1e3:
        raise TrellisError(
            f"expected a temperature from 0.001 to 1,000, got temperature={temperature!r}"
        )


@dataclass(frozen=True, eq=False)
class Teachers:
    """A stack of trained networks that others learn from (Hinton et al., 2015).

    Args:
        forward: The function of the stack of teachers.
        weights: Their weights, (teachers, …) each.
        weight: Share of the loss that comes from the teachers; the rest comes from the labels.
        temperature: Divisor of the logits of teachers and students.
        own: If True, teacher i teaches network i only. Otherwise every network learns from the
            mean of all teachers' probabilities.

    Raises:
        TrellisError: The weight or the temperature is out of range.
    """

    forward: Forward
    weights: Weights
    weight: float = 0.7
    temperature: float = 2.0
    own: bool = False

    def __post_init__(self) -> None:
        check_distillation(self.weight, self.temperature)

    @property
    def count(self) -> int:
        """The number of teachers."""
        return len(next(iter(self.weights.values())))

    @torch.no_grad()
    def probabilities(self, inputs: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the teachers' probabilities at the temperature.

        A teacher sees the same inputs as its student, with the same noise.

        Shapes: (networks, batch, …) -> (networks, batch, classes).
        """
        networks, batch = inputs.shape[:2]
        if self.own:
            given = inputs
        else:
            flat = inputs.flatten(0, 1)
            given = flat.expand(self.count, *flat.shape)
        logits = self.forward(self.weights, given)
        found = F.softmax(logits.to(dtype) / self.temperature, dim=2)
        return found if self.own else found.mean(0).reshape(networks, batch, -1)

    def losses(self, logits: Tensor, inputs: Tensor) -> Tensor:
        """Return the Kullback-Leibler divergence of each network from its teachers, (networks,).

        It is multiplied by the square of the temperature, so that gradients keep their size.
        """
        wanted = self.probabilities(inputs, logits.dtype)
        said = F.log_softmax(logits / self.temperature, dim=2)
        divergence = F.kl_div(said, wanted, reduction="none").sum(2).mean(1)
        return divergence * self.temperature**2
