"""The algebras in which messages run: how paths join (⊕) and how links chain (⊗).

| algebra  | ⊕, ⊗    | a message says            |
|----------|---------|---------------------------|
| Boolean  | or, and | is the unit reached       |
| MaxTimes | max, ×  | the weight of the best path |
| SumTimes | +, ×    | the weight of all paths   |

| BestPath | max, ×  | the same, differentiable: its gradient marks the best path |

Where ⊕ is idempotent, rows of a contraction that are equal are computed once (``merges``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from .kernels import as_bytes, max_product
from .messages import distinct

FEW = 8  # rows up to which going through them one by one beats a float matrix product


class Algebra(Protocol):
    dtype: torch.dtype
    idempotent: bool
    merges: bool

    def join(self, a: Tensor, b: Tensor) -> Tensor: ...

    def times(self, a: Tensor, b: Tensor) -> Tensor: ...

    def reduce(self, x: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor: ...

    def matmul(self, x: Tensor, w: Tensor) -> Tensor: ...

    def strongest(self, w: Tensor) -> Tensor:
        """⊕ over the last dimension of a weight, which stays with size one."""
        ...


class Boolean:
    """Is there a path at all?"""

    dtype = torch.bool
    idempotent = True
    merges = True

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        return a | b

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a & b

    def reduce(self, x: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor:
        """Or over ``dims``, which stay with size one."""
        return as_bytes(x).amax(dim=tuple(dims), keepdim=True).view(torch.bool)

    def matmul(self, x: Tensor, w: Tensor) -> Tensor:
        """x (B, R, K), w (B, N, K) to (B, R, N). Many rows go through float products of zeros
        and ones, which are exact in the only respect that counts, being zero or not."""
        if x.shape[1] <= FEW:
            return max_product(x, w)
        return torch.bmm(x.float(), w.float().mT) > 0

    def strongest(self, w: Tensor) -> Tensor:
        return as_bytes(w).amax(-1, keepdim=True).view(torch.bool)


class MaxTimes:
    """The product along the best path, of absolute values. Products and maxima round alike on
    every device.

    Contractions of more than ``limit`` products first merge the positions that share the weight
    into one, which can only raise scores: an upper bound where exactness would cost too much.
    """

    idempotent = True
    merges = True

    def __init__(self, dtype: torch.dtype = torch.float32, limit: int = 1 << 24) -> None:
        self.dtype = dtype
        self.limit = limit

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.maximum(a, b)

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def reduce(self, x: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor:
        return x.amax(dim=tuple(dims), keepdim=True)

    def merge(self, x: Tensor, w: Tensor) -> bool:
        rows = x.shape[1]
        return rows > 2 and rows * w.numel() > self.limit

    def matmul(self, x: Tensor, w: Tensor) -> Tensor:
        if self.merge(x, w):
            x = x.amax(1, keepdim=True)
        return max_product(x, w)

    def strongest(self, w: Tensor) -> Tensor:
        low, high = torch.aminmax(w, dim=-1, keepdim=True)
        return torch.maximum(high, -low)


class SumTimes:
    """The summed product over all paths."""

    dtype = torch.float64
    idempotent = False
    merges = False

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def reduce(self, x: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor:
        uniform = 1
        for d in dims:
            uniform *= sizes[d] if x.shape[d] == 1 else 1
        return x.sum(dim=tuple(dims), keepdim=True) * uniform

    def matmul(self, x: Tensor, w: Tensor) -> Tensor:
        return torch.bmm(x, w.mT)

    def strongest(self, w: Tensor) -> Tensor:
        return w.sum(-1, keepdim=True)


class BestPath:
    """MaxTimes for small networks, in which every maximum has one winner, so that the gradient
    of a message is non-zero exactly on the connections of the one path (or tree, behind gates)
    that attains it. Rows are not merged: equal values may come by different connections."""

    dtype = torch.float64
    idempotent = True
    merges = False

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.where(a >= b, a, b)

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def reduce(self, x: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor:
        for d in dims:
            x = x.max(d, keepdim=True).values
        return x

    def matmul(self, x: Tensor, w: Tensor) -> Tensor:
        rows = [(x[:, r, None] * w).max(-1).values for r in range(x.shape[1])]
        return torch.stack(rows, 1)

    def strongest(self, w: Tensor) -> Tensor:
        return w.max(-1, keepdim=True).values


def contract(algebra: Algebra, x: Tensor, w: Tensor | None, inner: int) -> Tensor:
    """One contraction in an algebra: x (b, m, k) uniform or not, w (B, N, K) to (B, m, N).

    ``w`` None stands for a matrix of ones; ``inner`` is K.
    """
    if w is None:
        return algebra.reduce(x, (2,), (1, 1, inner))
    if x.shape[2] == 1 and inner > 1:
        best = algebra.strongest(w).mT  # (B, 1, N)
        return algebra.times(x, best)
    x = x.expand(w.shape[0], -1, -1)
    if algebra.merges and x.shape[1] > 2:
        b, m, k = x.shape
        found = distinct(x.permute(1, 0, 2).reshape(m, b * k))
        if found is not None:
            rows, which = found
            out = algebra.matmul(rows.reshape(-1, b, k).permute(1, 0, 2), w)
            return out if out.shape[1] == 1 else out[:, which]
    return algebra.matmul(x, w)


def paired_rows(algebra: Algebra, x: Tensor, g: Tensor, positions: int) -> tuple[Tensor, Tensor]:
    """x (b, m, k) and g (b, m, n) with the same, distinct, rows: what the uses of a weight see.

    Rows beyond `MaxTimes.limit` are merged to their maximum: an upper bound.
    """
    b = max(x.shape[0], g.shape[0])
    x, g = x.expand(b, -1, -1), g.expand(b, -1, -1)
    if x.shape[1] == 1 and g.shape[1] == 1:
        return x, g
    m = positions
    x, g = x.expand(b, m, -1), g.expand(b, m, -1)
    if algebra.merges:
        both = torch.cat([x, g], 2)
        found = distinct(both.permute(1, 0, 2).reshape(m, -1))
        if found is not None:
            rows = found[0].reshape(-1, b, both.shape[2]).permute(1, 0, 2)
            x, g = rows.split([x.shape[2], g.shape[2]], 2)
    products = x.shape[1] * b * x.shape[2] * g.shape[2]
    if isinstance(algebra, MaxTimes) and x.shape[1] > 2 and products > algebra.limit:
        x, g = x.amax(1, keepdim=True), g.amax(1, keepdim=True)
    return x, g


def outer(algebra: Algebra, x: Tensor, g: Tensor, positions: int) -> Tensor:
    """⊕ over positions of x[b, m, k] ⊗ g[b, m, n]: broadcastable to (B, N, K)."""
    x, g = paired_rows(algebra, x, g, positions)
    if x.shape[1] == 1:
        many = positions if not algebra.idempotent else 1
        return algebra.times(x, g.mT) * many if many > 1 else algebra.times(x, g.mT)
    return algebra.matmul(g.mT.contiguous(), x.mT.contiguous())
