"""The batch of each step and its noise: both depend on the seed and the step only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


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
