"""The few numbers that say what becomes of a recording, drawn for every network and recording."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...train.batches import stream

TURN, SIZE, WARP, SHARE, START, MIRROR = slice(0, 3), 3, slice(4, 6), 6, 7, 8
COUNT = 9


class Draws:
    """Uniform numbers from −1 to 1: ``draws(step, recordings)`` is (networks, recordings, 9).

    They depend on a network's seed and the step alone. All nine are drawn whatever is switched
    on, so that the strength of one kind leaves the others as they are.

    >>> draws = Draws([7, 8], torch.device("cpu"), torch.float32)
    >>> alone = Draws([8], torch.device("cpu"), torch.float32)
    >>> torch.equal(draws(3, 600)[1], alone(3, 600)[0])
    True
    """

    def __init__(self, seeds: Sequence[int], device: torch.device, dtype: torch.dtype) -> None:
        self.seeds, self.device, self.dtype = list(seeds), device, dtype
        self.generator = torch.Generator(device)

    def __call__(self, step: int, recordings: int) -> Tensor:
        drawn = torch.empty(
            len(self.seeds), recordings, COUNT, dtype=self.dtype, device=self.device
        )
        for own, seed in zip(drawn, self.seeds, strict=True):
            # The noise of the steps 0, 1, 2 … takes the streams 0, 1, 2 …; these are −1, −2, …
            self.generator.manual_seed(stream(seed, -1 - step))
            own.uniform_(-1, 1, generator=self.generator)
        return drawn
