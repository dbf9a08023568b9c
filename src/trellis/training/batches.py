"""The batch of each step, its noise and its dropout: all depend on the seed and the step only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import TrellisError
from .stacks import Weights


def batch_count(recordings: int, most: int | None) -> int:
    """Return the number of batches of at most ``most`` recordings in an epoch.

    >>> batch_count(600, 600), batch_count(1020, 600)
    (1, 2)
    """
    return 1 if most is None else -(-recordings // most)


def batch_indices(recordings: int, most: int | None, epoch: int) -> list[Tensor]:
    """Return the indices of each batch of an epoch.

    All batches have one size; the remainder is left out of this epoch. All networks of a stack see
    the same batches, so that the data is read once. A single batch holds all recordings in order.

    >>> [len(b) for b in batch_indices(1021, 600, epoch=3)]
    [510, 510]
    """
    if batch_count(recordings, most) == 1:
        return [torch.arange(recordings)]
    order = torch.randperm(recordings, generator=torch.Generator().manual_seed(epoch))
    count = batch_count(recordings, most)
    size = recordings // count
    return [order[i * size : (i + 1) * size] for i in range(count)]


class Feed(Protocol):
    """The input of each step: noise or data augmentation.

    The result depends on each network's seed and the step only.
    """

    def onto(self, out: Tensor, x: Tensor, step: int) -> None:
        """Write the inputs made of x (batch, …) into out (networks, batch, …)."""


class Noise:
    """Gaussian noise on the inputs of a stack.

    A network gets the same noise whichever stack it is part of.

    Args:
        seeds: One seed per network.
        deviation: Standard deviation; 0 adds no noise.
        device: The device of the inputs.
    """

    def __init__(self, seeds: Sequence[int], deviation: float, device: torch.device) -> None:
        self.seeds = list(seeds)
        self.deviation = deviation
        self.generator = torch.Generator(device)

    def onto(self, out: Tensor, x: Tensor, step: int) -> None:
        """Write x (batch, …) plus noise into out (networks, batch, …)."""
        if self.deviation == 0:
            out.copy_(x)
            return
        for i, seed in enumerate(self.seeds):
            self.generator.manual_seed(stream(seed, step))
            out[i].normal_(0, self.deviation, generator=self.generator)
        out.add_(x)


def stream(seed: int, step: int) -> int:
    """Return the seed of the generator for one step of one network."""
    # Hashed, because torch's CPU generator uses only the lowest 32 bits of its seed.
    mixed = hashlib.blake2b(f"{seed} {step}".encode(), digest_size=8).digest()
    return int.from_bytes(mixed, "little") >> 1


class Dropout:
    """Drop a fraction of the hidden units that one parameter reads, at every step.

    All recordings of a step lack the same units. Dropping them is therefore a product with the
    parameter's columns, and the network's own function stays unchanged. The remaining columns are
    divided by the fraction of units kept, so that sums keep their mean. Which units are dropped
    depends on a network's seed and the step only.

    Args:
        name: The parameter (networks, outputs, units).
        rates: The fraction of units to drop, one per network, from 0 to below 1.
        units: The number of units.
        seeds: One seed per network.
        device: The device of the parameter.
        read: The units (networks, columns) that the parameter's columns stand for, if it reads
            only some of them.

    Raises:
        TrellisError: A rate is out of range, or there are more or fewer rates than seeds.

    Example:
        >>> dropout = Dropout("dense", [0.5], units=6, seeds=[0], device=torch.device("cpu"))
        >>> dropout.draw(step=3)
        >>> dropout.applied({"dense": torch.ones(1, 1, 6)})["dense"]
        tensor([[[0., 2., 0., 0., 0., 2.]]])
    """

    def __init__(
        self,
        name: str,
        rates: Sequence[float],
        units: int,
        seeds: Sequence[int],
        device: torch.device,
        read: Tensor | None = None,
    ) -> None:
        if len(rates) != len(seeds):
            raise TrellisError(
                f"expected one dropout rate per network, got {len(rates)} for {len(seeds)} networks"
            )
        for rate in rates:
            if not 0 <= rate < 1:
                raise TrellisError(f"expected 0 <= dropout rate < 1, got {rate!r}")
        self.name, self.rates, self.seeds = name, list(rates), list(seeds)
        self.factors = torch.ones(len(seeds), 1, units, device=device)
        self.read = None if read is None else read[:, None]
        self.generator = torch.Generator(device)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that the result depends on, as JSON can hold them."""
        return {"name": self.name, "rates": self.rates}

    def draw(self, step: int) -> None:
        """Draw the units of a step, in place: a CUDA graph reads the same tensor."""
        for factors, rate, seed in zip(self.factors, self.rates, self.seeds, strict=True):
            if rate > 0:  # negative seeds: other random numbers than for noise and augmentation
                self.generator.manual_seed(stream(-1 - seed, step))
                factors.bernoulli_(1 - rate, generator=self.generator).div_(1 - rate)

    def applied(self, weights: Weights) -> Weights:
        """Return the weights with the columns of the dropped units set to 0; differentiable."""
        found = dict(weights)
        factors = self.factors if self.read is None else self.factors.gather(2, self.read)
        found[self.name] = weights[self.name] * factors
        return found
