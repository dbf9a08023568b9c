"""The recordings of each step, and the noise on them: a matter of the seed and the step alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import TrellisError


def batch_count(recordings: int, most: int | None) -> int:
    """How many batches of at most ``most`` an epoch over ``recordings`` has.

    >>> batch_count(600, 600), batch_count(1020, 600)
    (1, 2)
    """
    return 1 if most is None else -(-recordings // most)


def batch_indices(recordings: int, most: int | None, epoch: int) -> list[Tensor]:
    """The batches of an epoch, all of one size; what does not divide is left for another epoch.

    All networks see the same batches, so that a stack reads the data once. One batch means all
    recordings in their own order.

    >>> [len(b) for b in batch_indices(1021, 600, epoch=3)]
    [510, 510]
    """
    if batch_count(recordings, most) == 1:
        return [torch.arange(recordings)]
    return batches_of(shuffled(recordings, epoch), most)


def shuffled(recordings: int, epoch: int) -> Tensor:
    """The order in which an epoch sees recordings."""
    return torch.randperm(recordings, generator=torch.Generator().manual_seed(epoch))


def batches_of(order: Tensor, most: int | None) -> list[Tensor]:
    """Recordings in batches of one size, at most ``most``."""
    count = batch_count(len(order), most)
    size = len(order) // count
    return [order[i * size : (i + 1) * size] for i in range(count)]


class Feed(Protocol):
    """What a network sees of a recording, at each step anew.

    ``onto(out, x, step)`` writes what becomes of x (batch, …) into out (networks, batch, …). It
    depends on each network's seed and the step alone.
    """

    def onto(self, out: Tensor, x: Tensor, step: int) -> None: ...


class Noise:
    """Gaussian noise for every network of a stack, the same whichever stack it trains in.

    ``noise.onto(out, x, step)`` writes x (batch, …) plus fresh noise into out
    (networks, batch, …).
    """

    def __init__(self, seeds: Sequence[int], deviation: float, device: torch.device) -> None:
        self.seeds = list(seeds)
        self.deviation = deviation
        self.generator = torch.Generator(device)

    def onto(self, out: Tensor, x: Tensor, step: int) -> None:
        if self.deviation == 0:
            out.copy_(x)
            return
        for i, seed in enumerate(self.seeds):
            self.generator.manual_seed(stream(seed, step))
            out[i].normal_(0, self.deviation, generator=self.generator)
        out.add_(x)


def stream(seed: int, step: int) -> int:
    """The seed of a generator for one step of one network."""
    # Mixed, because torch's generator on a CPU looks at the lowest 32 bits of its seed alone.
    mixed = hashlib.blake2b(f"{seed} {step}".encode(), digest_size=8).digest()
    return int.from_bytes(mixed, "little") >> 1


# Recordings that a step sees twice, and networks that are to say the same of them.


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
