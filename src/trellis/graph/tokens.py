"""Token assignments: trace models that multiply signals once for each combination of tokens.

A token selects one row of an embedding, so two rows are never present at once. This matters where
signals are multiplied: in ``Embedding -> a * silu(b)`` a weight of ``a`` is live only if one row
reaches both sides. So a model with gates is traced over a batch of token assignments. A connection
is live if it is live under one of them.

- Up to `ALL` assignments, all of them are tried. Liveness is exact.
- With more, every pair of tokens at every two positions is tried. A connection that needs three
  particular tokens at once may be reported as dead.
- If that is too much work (`MOST_USES`), as with the vocabulary of a language model, all rows
  count as present at once. Liveness is then an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

ALL = 256
PAIRS = 1024
MOST_USES = 1 << 27  # uses of connections, over all assignments


def assignments(
    inputs: Sequence[Tensor], vocabularies: Mapping[int, int], most: int
) -> tuple[Tensor, ...] | None:
    """Return the inputs as a batch with one sample for each assignment.

    None if there are more than ``most`` assignments. ``vocabularies`` maps the place of each input
    that holds tokens to the size of its vocabulary.

    >>> assignments([torch.zeros(1, 2, dtype=torch.int64)], {0: 2}, 4)[0].tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    if any(x.shape[:1] != (1,) for x in inputs):
        return None
    sizes = [vocabularies[i] for i in vocabularies for _ in range(inputs[i].numel())]
    if not sizes:
        return None
    rows = _all(sizes) if math.prod(sizes) <= ALL else _pairs(sizes)
    if rows is None or len(rows) > most:
        return None
    batch, start = [], 0
    for place, x in enumerate(inputs):
        if place in vocabularies:
            mine = rows[:, start : start + x.numel()]
            start += x.numel()
            batch.append(mine.reshape(len(rows), *x.shape[1:]).to(x))
        else:
            batch.append(x.expand(len(rows), *x.shape[1:]).clone())
    return tuple(batch)


def _all(sizes: Sequence[int]) -> Tensor:
    count = torch.arange(math.prod(sizes))
    columns = []
    for size in sizes:
        columns.append(count % size)
        count = count // size
    return torch.stack(columns, 1)


def _pairs(sizes: Sequence[int]) -> Tensor | None:
    """Return an orthogonal array (p², columns), p prime: every two columns hold every pair.

    Column j of row (a, b) is a + j b modulo p, so two columns determine a and b.
    """
    p = max(*sizes, len(sizes), 2) if len(sizes) > 1 else sizes[0]
    while any(p % d == 0 for d in range(2, math.isqrt(p) + 1)):
        p += 1
    if p * p > PAIRS:
        return None
    a, b = torch.arange(p * p) // p, torch.arange(p * p) % p
    return torch.stack([(a + j * b) % p % size for j, size in enumerate(sizes)], 1)
