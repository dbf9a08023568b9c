"""Messages: one value per unit, stored as a tensor that broadcasts to the signal's shape.

A dimension of size one where the signal has more means "the same along this dimension", which
is how whole sequences and images stay as small as one position for as long as they are uniform.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
        olds, news = [], []
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
    m, n = rows.shape
    if m < 2:
        return None
    generator = torch.Generator().manual_seed(n)
    probe = torch.rand(n, generator=generator, dtype=torch.float64).to(rows.device)
    codes = (rows.to(torch.float64) * probe).sum(1) if n < 64 else rows.to(torch.float64) @ probe
    values, which = torch.unique(codes, return_inverse=True)
    if len(values) * 2 > m:
        return None
    first = torch.full((len(values),), m, dtype=torch.int64, device=rows.device)
    first.scatter_reduce_(0, which, torch.arange(m, device=rows.device), "amin")
    chosen = rows[first]
    if not torch.equal(chosen[which], rows):
        return None
    return chosen, which
