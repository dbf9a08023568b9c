"""The inner loops: passes over large weights in pieces that stay in cache.

Allocating a tensor as large as a weight costs several times what reading the weight does, so
nothing here makes one: pieces of work run through one small buffer. Weights are (N, K) matrices,
contiguous along one of their dimensions or the other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

CHUNK = 1 << 18  # elements of a working buffer, if they take four bytes each


def pieces(w: Tensor) -> Iterator[slice]:
    """Slices of the first dimension of (rows, columns) of about four times CHUNK bytes each."""
    size = 4 * CHUNK // w.element_size() << (0 if w.device.type == "cpu" else 6)
    step = max(size // max(w.shape[1], 1), 1)
    for a in range(0, w.shape[0], step):
        yield slice(a, min(a + step, w.shape[0]))


def by_columns(w: Tensor) -> bool:
    """Whether columns lie further apart than rows: then work on the transpose."""
    return w.stride(0) < w.stride(1) and w.shape[0] > 1


def as_bytes(x: Tensor) -> Tensor:
    """Booleans as bytes, whose maximum is ten times as fast as `any`."""
    return x.view(torch.uint8) if x.dtype == torch.bool else x


def count(mask: Tensor) -> int:
    """How many are true; numpy counts several times faster than torch does on the CPU."""
    if mask.device.type == "cpu" and mask.is_contiguous():
        return int(np.count_nonzero(mask.numpy()))
    return int(torch.count_nonzero(mask))


def max_product(x: Tensor, w: Tensor) -> Tensor:
    """max over k of x[b, r, k] · |w[b, n, k]|: (B, R, K), (B, N, K) to (B, R, N).

    On booleans this is the matrix product of or and and.
    """
    if x.shape[1] * w.numel() <= CHUNK:
        product = as_bytes(x)[:, :, None] * as_bytes(w)[:, None]
        product = product if product.dtype == torch.uint8 else product.abs_()
        return product.amax(-1).to(x.dtype)
    out = torch.zeros(w.shape[0], x.shape[1], w.shape[1], dtype=x.dtype, device=x.device)
    for i in range(w.shape[0]):
        _max_product(x[i], w[i], out[i])
    return out


def _max_product(x: Tensor, w: Tensor, out: Tensor) -> None:
    """x (R, K), w (N, K) into out (R, N)."""
    x, w, out = as_bytes(x.contiguous()), as_bytes(w), as_bytes(out)
    transposed = by_columns(w)
    if transposed:
        w = w.mT  # (K, N)
    several = x.shape[0] > 1 and x.dtype != torch.uint8
    buffers: list[Tensor] = []
    for part in pieces(w):
        piece = w[part]
        if not buffers or buffers[0].shape != piece.shape:
            buffers = [torch.empty_like(piece) for _ in range(1 + several)]
        product = buffers[0]
        if several:
            piece = torch.abs(piece, out=buffers[1])
        for r in range(x.shape[0]):
            torch.mul(piece, x[r, part, None] if transposed else x[r], out=product)
            if product.dtype != torch.uint8 and not several:
                product.abs_()
            if transposed:
                torch.maximum(out[r], product.amax(0), out=out[r])
            else:
                torch.amax(product, 1, out=out[r, part])


def strongest(w: Tensor) -> Tensor:
    """max over k of |w[b, n, k]|: (B, N, K) to (B, N, 1)."""
    out = torch.zeros(w.shape[0], w.shape[1], 1, dtype=w.dtype, device=w.device)
    for i in range(w.shape[0]):
        matrix, row = as_bytes(w[i]), as_bytes(out[i])
        transposed = by_columns(matrix)
        matrix = matrix.mT if transposed else matrix
        for part in pieces(matrix):
            piece = matrix[part] if row.dtype == torch.uint8 else matrix[part].abs()
            best = piece.amax(0 if transposed else 1)
            if transposed:
                torch.maximum(row[:, 0], best, out=row[:, 0])
            else:
                row[part, 0] = best
    return out


def through(x: Tensor, g: Tensor, w: Tensor, target: Tensor, join: bool) -> None:
    """target[n, k] = max over r of x[r, k] · g[r, n] · |w[n, k]|, in place; with ``join``, the
    maximum of that and what stood there.

    x (R, K), g (R, N), w and target (N, K) laid out alike. On booleans: or and and.
    """
    x, g, w, target = (as_bytes(t) for t in (x, g, w, target))
    if by_columns(w):
        x, g, w, target = g, x, w.mT, target.mT
    for part in pieces(w):
        if join:
            found = _through(x, g[:, part], w[part], torch.empty_like(target[part]))
            torch.maximum(target[part], found, out=target[part])
        else:
            _through(x, g[:, part], w[part], target[part])


def _through(x: Tensor, g: Tensor, w: Tensor, out: Tensor) -> Tensor:
    """One piece of `through`."""
    if x.shape[0] == 1:
        torch.mul(w, x[0], out=out).mul_(g[0, :, None])
    else:
        best = torch.mul(g[0, :, None], x[0])
        for r in range(1, x.shape[0]):
            torch.maximum(best, torch.mul(g[r, :, None], x[r], out=out), out=best)
        torch.mul(w, best, out=out)
    return out if out.dtype == torch.uint8 else out.abs_()


def reaching(
    w: Tensor, factors: list[tuple[Tensor, Tensor]], floor: float, rows: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Where in w (N, K) the largest of x[r, k] · g[r, n] · |w[n, k]|, over r and over all
    ``factors`` x (R, K) and g (R, N), is at least ``floor``: flat places, and those values.

    Only ``rows`` (ascending; None: all of them) are looked at.
    """
    places: list[Tensor] = []
    values: list[Tensor] = []
    columns = w.shape[1]
    for part in pieces(w if rows is None else rows[:, None].expand(-1, columns)):
        select = part if rows is None else rows[part]
        piece = w[select]
        best: Tensor | None = None
        for x, g in factors:
            found = _through(x, g[:, select], piece, torch.empty_like(piece))
            best = found if best is None else torch.maximum(best, found, out=best)
        assert best is not None
        found = where(best >= floor)
        values.append(best.view(-1)[found])
        if rows is None:
            places.append(found + part.start * columns)
        else:
            row = torch.div(found, columns, rounding_mode="floor")
            places.append(found + (rows[part][row] - row) * columns)
    return torch.cat(places), torch.cat(values)


def where(mask: Tensor) -> Tensor:
    """Flat positions of what is true, ascending; on the CPU numpy finds them much faster."""
    if mask.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return torch.nonzero(mask.reshape(-1))[:, 0]
