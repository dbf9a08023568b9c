"""The largest numbers of many rows at once: each row its own count, without sorting."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_INFINITE = 0x7F800000  # the bits of it


def threshold(values: Tensor, counts: Tensor) -> Tensor:
    """The ``counts[i]``-th largest number of each row; where that is the 0-th, infinity.

    ``values`` (rows, numbers) are float32 and not negative; ``counts`` (rows,). Such floats are in
    the order of their bits, so that halving the range of bits 31 times finds the number itself:
    31 passes over memory, which a GPU makes faster than it sorts. A CPU partitions.

    >>> threshold(torch.tensor([[3.0, 1.0, 2.0], [5.0, 5.0, 0.0]]), torch.tensor([2, 1]))
    tensor([2., 5.])
    """
    if values.device.type == "cpu":
        return torch.stack([_nth(*each) for each in zip(values, counts.tolist(), strict=True)])
    return _halved(values, counts)


def largest(counts: Tensor, values: Tensor, *further: Tensor) -> Tensor:
    """A mask of the ``counts[i]`` largest of each row. Ties go to the larger in ``further``, then
    to the one that comes first. What is zero in ``values`` is never chosen.

    >>> tied = torch.tensor([[0.0, 2.0, 2.0, 2.0]])
    >>> largest(torch.tensor([2]), tied).int()
    tensor([[0, 1, 1, 0]], dtype=torch.int32)
    >>> largest(torch.tensor([2]), tied, torch.tensor([[9.0, 1.0, 2.0, 3.0]])).int()
    tensor([[0, 0, 1, 1]], dtype=torch.int32)
    """
    tied = values > 0
    chosen = torch.zeros_like(tied)
    for each in (values, *further):
        left = torch.where(tied, each, 0.0)
        cut = threshold(left, counts)[:, None]
        above = left > cut
        chosen |= above
        counts = counts - above.sum(1)
        tied &= left == cut
    return chosen | (tied & (tied.cumsum(1, dtype=torch.int32) <= counts[:, None]))


def _nth(values: Tensor, count: int) -> Tensor:
    if count == 0:
        return torch.tensor(torch.inf)
    values = values[values > 0]  # a partition takes long where many numbers are the same
    place = len(values) - count
    if place < 0:
        return torch.tensor(0.0)
    return torch.from_numpy(np.partition(values.numpy(), place))[place]


def _halved(values: Tensor, counts: Tensor) -> Tensor:
    bits = values.contiguous().view(torch.int32)
    low = torch.zeros_like(counts, dtype=torch.int32)  # at least `counts` numbers from here up
    high = torch.full_like(low, _INFINITE + 1)  # fewer from here up
    for _ in range(31):
        middle = low + (high - low) // 2
        enough = (bits >= middle[:, None]).sum(1) >= counts
        low = torch.where(enough, middle, low)
        high = torch.where(enough, high, middle)
    return torch.where(counts == 0, _INFINITE, low).to(torch.int32).view(torch.float32)
