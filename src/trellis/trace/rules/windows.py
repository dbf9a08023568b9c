"""Windows of a convolution or a pooling, as an index (places, taps), −1 for padding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def pair(value: int | Sequence[int], n: int) -> list[int]:
    """One number, or one per dimension, as one per dimension.

    >>> pair(2, 3), pair([1], 2), pair([], 2)
    ([2, 2, 2], [1, 1], [])
    """
    if isinstance(value, int):
        return [value] * n
    values = [int(v) for v in value]
    return values * n if len(values) == 1 else values


def grid(per_dim: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Combine per-dimension indices (places_d, taps_d) into (∏ places, ∏ taps), row-major.

    >>> grid([torch.tensor([[0], [1]]), torch.tensor([[0, -1]])], [2, 3])
    tensor([[ 0, -1],
            [ 3, -1]])
    """
    n = len(per_dim)
    flat = torch.zeros([1] * (2 * n), dtype=torch.int64)
    valid = torch.ones([1] * (2 * n), dtype=torch.bool)
    for d, index in enumerate(per_dim):
        shape = [1] * (2 * n)
        shape[d], shape[n + d] = index.shape
        part = index.reshape(shape)
        flat = flat * sizes[d] + part.clamp(min=0)
        valid = valid & (part >= 0)
    places = math.prod(index.shape[0] for index in per_dim)
    full = [index.shape[0] for index in per_dim] + [index.shape[1] for index in per_dim]
    return torch.where(valid, flat, -1).expand(full).reshape(places, -1)


def sliding(size: int, out: int, kernel: int, stride: int, padding: int, dilation: int) -> Tensor:
    """Index (out, kernel) of a window sliding along one dimension.

    >>> sliding(3, 2, kernel=3, stride=2, padding=1, dilation=1)
    tensor([[-1,  0,  1],
            [ 1,  2, -1]])
    """
    index = torch.arange(out)[:, None] * stride - padding + torch.arange(kernel) * dilation
    return torch.where((index >= 0) & (index < size), index, -1)


def from_pattern(pattern: Tensor) -> Tensor:
    """The columns that are true in each row of (places, size), padded with −1."""
    fan = max(int(pattern.sum(1).max()), 1)
    rows = [torch.nonzero(row)[:, 0].tolist() for row in pattern]
    return torch.tensor([row + [-1] * (fan - len(row)) for row in rows])


def adaptive(size: int, out: int) -> Tensor:
    """Windows of adaptive pooling along one dimension.

    >>> adaptive(5, 2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    spans = [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]
    fan = max(b - a for a, b in spans)
    return torch.tensor([[*range(a, b)] + [-1] * (fan - (b - a)) for a, b in spans])
