"""Messages: one value per unit, stored as a tensor that broadcasts to the signal's shape.

A dimension of size one where the signal has more means "the same along this dimension", which
is how whole sequences and images stay as small as one position for as long as they are uniform.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor


def regroup(message: Tensor, old: Sequence[int], new: Sequence[int]) -> Tensor:
    """Reshape a message of a signal from shape ``old`` to ``new``, uniform dimensions kept so.

    >>> regroup(torch.zeros(1, 3, 1), (1, 3, 4), (3, 2, 2)).shape
    torch.Size([3, 1, 1])
    >>> regroup(torch.zeros(1, 3, 1), (1, 3, 4), (12,)).shape
    torch.Size([12])
    """
    have, want = list(message.shape), list(message.shape)
    result: list[int] = []
    for olds, news in _groups(old, new):
        uniform = all(have[d] == 1 for d in olds)
        for d in olds:
            want[d] = 1 if uniform else old[d]
        result += [1 if uniform else new[d] for d in news]
    return message.expand(want).reshape(result)


def _groups(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Runs of dimensions of both shapes that hold the same number of units."""
    i = j = 0
    while i < len(old) or j < len(new):
        olds: list[int] = []
        news: list[int] = []
        a = b = 1
        while True:
            if olds and news and a == b:
                break
            if (a <= b and i < len(old)) or j >= len(new):
                if i >= len(old):
                    break
                a *= old[i]
                olds.append(i)
                i += 1
            else:
                b *= new[j]
                news.append(j)
                j += 1
        # Trailing ones belong to the last run.
        while i < len(old) and old[i] == 1:
            olds.append(i)
            i += 1
        while j < len(new) and new[j] == 1:
            news.append(j)
            j += 1
        yield olds, news


def distinct(rows: Tensor) -> tuple[Tensor, Tensor] | None:
    """The distinct rows of (m, n) and, for each row, which it is; None if that saves nothing.

    Rows are told apart by a random projection and compared in full afterwards, so equality is
    exact; rows the projection fails to bring together only cost time.
    """
    m = rows.shape[0]
    if m < 2:
        return None
    keys = _packed(rows) if rows.dtype == torch.bool else rows
    generator = torch.Generator().manual_seed(keys.shape[1])
    if keys.dtype == torch.int64:
        probe = torch.randint(-(1 << 62), 1 << 62, (keys.shape[1],), generator=generator)
        codes = (keys * probe.to(keys.device)).sum(1)
    else:
        probe = torch.rand(keys.shape[1], generator=generator, dtype=keys.dtype)
        codes = keys @ probe.to(keys.device)
    values, which = torch.unique(codes, return_inverse=True)
    if len(values) * 2 > m:
        return None
    first = torch.full((len(values),), m, dtype=torch.int64, device=rows.device)
    first.scatter_reduce_(0, which, torch.arange(m, device=rows.device), "amin")
    if not torch.equal(keys[first][which], keys):
        return None
    return rows[first], which


def _packed(rows: Tensor) -> Tensor:
    """Booleans (m, n) as bits, in int64 words: an eighth of the bytes to compare."""
    if rows.device.type != "cpu":
        return rows.to(torch.float32)
    bits = np.packbits(rows.numpy(), axis=1)
    words = np.zeros((bits.shape[0], -(-bits.shape[1] // 8) * 8), dtype=np.uint8)
    words[:, : bits.shape[1]] = bits
    return torch.from_numpy(words.view(np.int64))
