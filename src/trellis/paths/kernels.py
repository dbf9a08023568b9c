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

CHUNK = 1 << 19  # elements of a working buffer


def pieces(w: Tensor) -> Iterator[slice]:
    """Slices of the first dimension of (rows, columns) of about CHUNK elements each."""
    size = CHUNK if w.device.type == "cpu" else CHUNK << 6
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
    buffer: Tensor | None = None
    for part in pieces(w):
        piece = w[part]
        if buffer is None or buffer.shape != piece.shape:
            buffer = torch.empty(piece.shape, dtype=x.dtype, device=x.device)
        for r in range(x.shape[0]):
            torch.mul(piece, x[r, part, None] if transposed else x[r], out=buffer)
            if buffer.dtype != torch.uint8:
                buffer.abs_()
            if transposed:
                torch.maximum(out[r], buffer.amax(0), out=out[r])
            else:
                torch.amax(buffer, 1, out=out[r, part])


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
    buffers: list[Tensor] = []
    for part in pieces(w):
        if not buffers or buffers[0].shape != target[part].shape:
            buffers = [torch.empty_like(target[part]) for _ in range(2)]
        best, other = buffers
        piece = other if join else target[part]
        if x.shape[0] == 1:
            torch.mul(w[part], x[0], out=piece)
            piece.mul_(g[0, part, None])
        else:
            torch.mul(g[0, part, None], x[0], out=best)
            for r in range(1, x.shape[0]):
                torch.mul(g[r, part, None], x[r], out=other)
                torch.maximum(best, other, out=best)
            torch.mul(w[part], best, out=piece)
        if piece.dtype != torch.uint8:
            piece.abs_()
        if join:
            torch.maximum(target[part], piece, out=target[part])
