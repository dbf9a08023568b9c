"""Messages: one value per unit, stored as a tensor that broadcasts to the signal's shape.

A dimension of size one where the signal has more means "the same along this dimension", which
is how whole sequences and images stay as small as one position for as long as they are uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..trace.reshaping import groups
from .machine import on_cpu

Shape = tuple[int, ...]


def regroup(message: Tensor, old: Sequence[int], new: Sequence[int]) -> Tensor:
    """Reshape a message of a signal from shape ``old`` to ``new``, uniform dimensions kept so.

    >>> regroup(torch.zeros(1, 3, 1), (1, 3, 4), (3, 2, 2)).shape
    torch.Size([3, 1, 1])
    >>> regroup(torch.zeros(1, 3, 1), (1, 3, 4), (12,)).shape
    torch.Size([12])
    """
    want, result = _plan(tuple(message.shape), tuple(old), tuple(new))
    return message.expand(want).reshape(result)


@lru_cache(maxsize=1 << 14)
def _plan(have: Shape, old: Shape, new: Shape) -> tuple[Shape, Shape]:
    """What a message of shape ``have`` is expanded to, and then reshaped to."""
    want, result = list(have), []
    for olds, news in groups(old, new):
        uniform = all(have[d] == 1 for d in olds)
        for d in olds:
            want[d] = 1 if uniform else old[d]
        result += [1 if uniform else new[d] for d in news]
    return tuple(want), tuple(result)


def distinct(rows: Tensor) -> tuple[Tensor, Tensor] | None:
    """The distinct rows of (m, n) and, for each row, which it is; None if that saves nothing.

    Rows are told apart by a random projection and compared in full afterwards, so equality is
    exact; rows the projection fails to bring together only cost time.
    """
    if rows.shape[0] < 2:
        return None
    if rows.dtype == torch.bool and on_cpu(rows):
        found = _by_bits(rows)
        return found and (rows[found[0]], found[1])
    first, which = _by_projection(rows)
    if len(first) * 2 > len(rows) or not torch.equal(rows[first][which], rows):
        return None
    return rows[first], which


def _by_bits(rows: Tensor) -> tuple[Tensor, Tensor] | None:
    """Booleans (m, n): a row of each kind, and the kind of each row; None as above."""
    bits = np.packbits(np.ascontiguousarray(rows.numpy()), axis=1)  # packing strides is slow
    padded = np.zeros((len(bits), -(-bits.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    words = padded.view(np.uint64)
    generator = np.random.default_rng(0)
    probe = generator.integers(1 << 63, size=words.shape[1], dtype=np.uint64)
    codes = words @ probe  # wraps around, as it should
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    if len(first) * 2 > len(rows) or not np.array_equal(words[first][which], words):
        return None
    return torch.from_numpy(first), torch.from_numpy(which)


def _by_projection(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The same for numbers."""
    m = len(rows)
    keys = rows.to(torch.float32) if rows.dtype == torch.bool else rows
    generator = torch.Generator().manual_seed(keys.shape[1])
    probe = torch.rand(keys.shape[1], generator=generator, dtype=keys.dtype)
    values, which = torch.unique(keys @ probe.to(keys.device), return_inverse=True)
    first = torch.full((len(values),), m, dtype=torch.int64, device=rows.device)
    first.scatter_reduce_(0, which, torch.arange(m, device=rows.device), "amin")
    if len(first) * 2 > m:
        return first, which
    # A matrix product may round equal rows apart, by where they stand; then they are neighbours.
    new = torch.ones(len(first), dtype=torch.bool, device=rows.device)
    new[1:] = (keys[first[1:]] != keys[first[:-1]]).any(1)
    return first[new], (new.cumsum(0) - 1)[which]
