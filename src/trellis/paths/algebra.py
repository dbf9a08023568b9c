"""The algebras in which messages run: how paths join (⊕) and how links chain (⊗).

| algebra  | ⊕, ⊗    | a message says                                             |
|----------|---------|------------------------------------------------------------|
| Boolean  | or, and | is the unit reached                                        |
| MaxTimes | max, ×  | the weight of the best path                                |
| BestPath | max, ×  | the same, differentiable: its gradient marks the best path |
| SumTimes | +, ×    | the weight of all paths                                    |

Where ⊕ is idempotent, rows of a contraction that are equal are computed once (``merges``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..graph.simplify import groups
from .kernels import TAKES_ALL, Edges, as_bytes, at_once, is_cpu, max_product, strongest

# Messages: one value per unit, stored as a tensor that broadcasts to the signal's shape.
#
# A dimension of size one where the signal has more means "the same along this dimension", which
# is how whole sequences and images stay as small as one position for as long as they are uniform.


Shape = tuple[int, ...]


def regroup(message: Tensor, old: Sequence[int], new: Sequence[int]) -> Tensor:
    """Reshape a message of a signal from shape ``old`` to ``new``; uniform dimensions stay size 1.

    >>> regroup(torch.zeros(1, 3, 1), (1, 3, 4), (3, 2, 2)).shape
    torch.Size([3, 1, 1])
    >>> regroup(torch.zeros(1, 3, 1), (1, 3, 4), (12,)).shape
    torch.Size([12])
    """
    want, result = _plan(tuple(message.shape), tuple(old), tuple(new))
    return message.expand(want).reshape(result)


@lru_cache(maxsize=1 << 14)
def _plan(have: Shape, old: Shape, new: Shape) -> tuple[Shape, Shape]:
    """Return the shapes that a message of shape ``have`` is expanded to and then reshaped to."""
    want, result = list(have), []
    for olds, news in groups(old, new):
        uniform = all(have[d] == 1 for d in olds)
        for d in olds:
            want[d] = 1 if uniform else old[d]
        result += [1 if uniform else new[d] for d in news]
    return tuple(want), tuple(result)


def distinct(rows: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the distinct rows of (m, n) and the index of each row among them.

    None if that saves nothing. Rows are grouped by a random projection and then compared in full,
    so equality is exact. Equal rows that the projection does not group only cost time.
    """
    if rows.shape[0] < 2:
        return None
    if rows.dtype == torch.bool and is_cpu(rows):
        found = _by_bits(rows)
        return found and (rows[found[0]], found[1])
    first, which = _by_projection(rows)
    if len(first) * 2 > len(rows) or not torch.equal(rows[first][which], rows):
        return None
    return rows[first], which


def _by_bits(rows: Tensor) -> tuple[Tensor, Tensor] | None:
    """Group equal boolean rows (m, n): one row of each group, and each row's group; or None."""
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
    """Group equal rows of numbers, as `_by_bits` does for booleans."""
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


FEW = 8  # rows up to which going through them one by one beats a float matrix product


class Algebra(Protocol):
    dtype: torch.dtype
    idempotent: bool
    merges: bool

    def join(self, a: Tensor, b: Tensor) -> Tensor: ...

    def times(self, a: Tensor, b: Tensor) -> Tensor: ...

    def reduce(self, x: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor: ...

    def matmul(self, x: Tensor, w: Tensor) -> Tensor: ...

    def strongest(self, w: Tensor) -> Tensor: ...


class Boolean:
    """Compute whether there is a path at all."""

    dtype = torch.bool
    idempotent = True
    merges = True

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        return a | b

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a & b

    def reduce(self, x: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor:
        """Compute "or" over ``dims``, which stay with size one."""
        if not dims:  # torch reduces over all dimensions if none is given
            return x
        return as_bytes(x).amax(dim=tuple(dims), keepdim=True).view(torch.bool)

    def matmul(self, x: Tensor, w: Tensor) -> Tensor:
        """Contract x (B, R, K) and w (B, N, K) to (B, R, N).

        Many rows are computed by float products of zeros and ones. Whether these are zero is exact.
        """
        if x.shape[1] <= FEW:
            return max_product(x, w)
        return torch.bmm(x.float(), w.float().mT) > 0

    def strongest(self, w: Tensor) -> Tensor:
        return strongest(w)


class MaxTimes:
    """Compute the product of absolute values along the best path.

    Products and maxima are rounded in the same way on every device. Contractions of more than
    ``limit`` products first merge the positions that share the weight into one. This can only
    raise scores: an upper bound where the exact value would cost too much.
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
        return x.amax(dim=tuple(dims), keepdim=True) if dims else x

    def merge(self, x: Tensor, w: Tensor) -> bool:
        rows = x.shape[1]
        return rows > 2 and rows * w.numel() > self.limit

    def matmul(self, x: Tensor, w: Tensor) -> Tensor:
        if self.merge(x, w):
            x = x.amax(1, keepdim=True)
        return max_product(x, w)

    def strongest(self, w: Tensor) -> Tensor:
        return strongest(w)


class SumTimes:
    """Compute the sum over all paths of the product along the path."""

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
        return x.sum(dim=tuple(dims), keepdim=True) * uniform if dims else x

    def matmul(self, x: Tensor, w: Tensor) -> Tensor:
        return torch.bmm(x, w.mT)

    def strongest(self, w: Tensor) -> Tensor:
        return w.sum(-1, keepdim=True)


class BestPath:
    """Compute MaxTimes for small networks, with one winner for every maximum.

    So the gradient of a message is non-zero exactly on the connections of the path (behind gates,
    the tree) that attains it. Rows are not merged: equal values may come from different
    connections.
    """

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
        with torch.no_grad():  # all products would be stored, and be differentiated as zeros
            if not is_cpu(w) and at_once(x.shape[1], w):
                best = (x[:, :, None] * w[:, None]).max(-1).indices  # (b, m, n)
            else:
                rows = [(x[:, r, None] * w).max(-1).indices for r in range(x.shape[1])]
                best = torch.stack(rows, 1)
        return x.gather(2, best) * w.gather(2, best.mT).mT

    def strongest(self, w: Tensor) -> Tensor:
        return w.max(-1, keepdim=True).values


class Rows:
    """Cache the distinct rows of messages (b, m, k), since several weights read one message."""

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], tuple[Tensor, Tensor, Tensor | None]] = {}

    def of(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the distinct rows (b, r, k) and the index of each of the m; None if all differ."""
        b, m, k = x.shape
        if m <= 2:
            return x, None
        key = _key(x)
        if key not in self.known:
            found = distinct(x.permute(1, 0, 2).reshape(m, b * k))
            if found is None:
                self.known[key] = x, x, None
            else:
                self.known[key] = x, found[0].reshape(-1, b, k).permute(1, 0, 2), found[1]
        return self.known[key][1:]

    def spread(self, rows: Tensor, which: Tensor) -> Tensor:
        """Build the message (b, m, k) from its distinct rows, and cache these."""
        x = rows[:, which]
        self.known[_key(x)] = x, rows, which
        return x


def _key(x: Tensor) -> tuple[object, ...]:
    return x.data_ptr(), x.shape, x.stride(), x.dtype


def contract(
    algebra: Algebra, x: Tensor, w: Tensor | Edges | None, inner: int, known: Rows | None = None
) -> Tensor:
    """Contract x (b, m, k), uniform or not, and w (B, N, K) to (B, m, N) in an algebra.

    ``w`` None stands for a matrix of ones; ``inner`` is K. `Edges` work with `Boolean` only.
    """
    if w is None:
        return algebra.reduce(x, (2,), (1, 1, inner))
    if x.shape[2] == 1 and inner > 1:
        best = w.ends() if isinstance(w, Edges) else algebra.strongest(w)
        return algebra.times(x, best.mT)  # (B, 1, N)
    if isinstance(w, Tensor) and not algebra.merges:
        return algebra.matmul(x.expand(w.shape[0], -1, -1), w)
    if isinstance(w, Tensor) and all_rows(algebra, x, x.shape[1] * w.numel()):
        return algebra.matmul(x.expand(w.shape[0], -1, -1), w)
    known = known or Rows()
    rows, which = known.of(x)
    rows = rows.expand(w.shape[0], -1, -1)
    out = w.reach(rows) if isinstance(w, Edges) else algebra.matmul(rows, w)
    return out if which is None or out.shape[1] == 1 else known.spread(out, which)


def all_rows(algebra: Algebra, x: Tensor, products: int) -> bool:
    """Return whether a GPU computes all rows faster than it finds equal ones.

    The result is the same: few products are within `MaxTimes.limit` in both cases.
    """
    limit = algebra.limit if isinstance(algebra, MaxTimes) else TAKES_ALL
    return algebra.merges and not is_cpu(x) and products <= min(limit, TAKES_ALL)


def paired_rows(
    algebra: Algebra, x: Tensor, g: Tensor, positions: int, known: Rows | None = None
) -> tuple[Tensor, Tensor]:
    """Reduce x (b, m, k) and g (b, m, n) to the distinct pairs of rows over the uses of a weight.

    Rows beyond `MaxTimes.limit` are merged to their maximum, an upper bound.
    """
    b = max(x.shape[0], g.shape[0])
    x, g = x.expand(b, -1, -1), g.expand(b, -1, -1)
    if x.shape[1] == 1 and g.shape[1] == 1:
        return x, g
    rows = max(x.shape[1], g.shape[1])
    if all_rows(algebra, x, rows * b * x.shape[2] * g.shape[2]):
        return x.expand(b, rows, -1), g.expand(b, rows, -1)
    if algebra.merges:
        known = known or Rows()
        (x, in_x), (g, in_g) = (_which(known.of(t), positions) for t in (x, g))
        pairs = torch.unique(in_x * g.shape[1] + in_g)
        x, g = x[:, pairs // g.shape[1]], g[:, pairs % g.shape[1]]
    else:
        x, g = x.expand(b, positions, -1), g.expand(b, positions, -1)
    products = x.shape[1] * b * x.shape[2] * g.shape[2]
    if isinstance(algebra, MaxTimes) and x.shape[1] > 2 and products > algebra.limit:
        x, g = x.amax(1, keepdim=True), g.amax(1, keepdim=True)
    return x, g


def _which(found: tuple[Tensor, Tensor | None], positions: int) -> tuple[Tensor, Tensor]:
    rows, which = found
    if which is None:
        which = torch.arange(rows.shape[1], device=rows.device).expand(positions)
    return rows, which


def outer(
    algebra: Algebra, x: Tensor, g: Tensor, positions: int, known: Rows | None = None
) -> Tensor:
    """Compute ⊕ over positions of x[b, m, k] ⊗ g[b, m, n], broadcastable to (B, N, K)."""
    x, g = paired_rows(algebra, x, g, positions, known)
    if x.shape[1] == 1:
        many = positions if not algebra.idempotent else 1
        return algebra.times(x, g.mT) * many if many > 1 else algebra.times(x, g.mT)
    return algebra.matmul(g.mT.contiguous(), x.mT.contiguous())
