"""The GCN's GPU kernels, in Triton: hidden units are made where they are used, never stored.

At batch 600 a network has 26 million hidden values; writing and reading them several times a
step is what training costs. Both kernels make a tile of them from the mixed inputs ``z``, use it,
and forget it. Shapes: z (N, K, U, B, C), w (N, K, C, F), d (N, classes, U, K, F): N networks,
K heads, U nodes, B recordings, C channels, F filters.

A tile's sides are powers of two: classes are padded to P, and channels read in two parts, so that
96 is 64 and 32.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def part(base, row, rows, start, C: tl.constexpr, SIZE: tl.constexpr, limit):  # fmt: skip
    """Rows of a (…, C) tensor, SIZE channels from ``start``; zero beyond C and beyond ``rows``."""
    c = start + tl.arange(0, SIZE)
    inside = (rows[:, None] < limit) & (c[None, :] < C)
    return tl.load(base + row[:, None] * C + c[None, :], mask=inside, other=0.0)


@triton.jit
def put(base, row, rows, start, C: tl.constexpr, SIZE: tl.constexpr, limit, value):  # fmt: skip
    """The reverse of `part`."""
    c = start + tl.arange(0, SIZE)
    inside = (rows[:, None] < limit) & (c[None, :] < C)
    tl.store(base + row[:, None] * C + c[None, :], value, mask=inside)


@triton.jit
def filters_of(w, head, start, C: tl.constexpr, F: tl.constexpr, SIZE: tl.constexpr):
    """SIZE channels of one head's convolution, (SIZE, F)."""
    c = start + tl.arange(0, SIZE)
    f = tl.arange(0, F)
    at = (head * C + c[:, None]) * F + f[None, :]
    return tl.load(w + at, mask=c[:, None] < C, other=0.0)


@triton.jit
def dense_at(n, u, k, U, K, classes, F: tl.constexpr, P: tl.constexpr):
    """Where the (F, P) weights of one hidden node lie in d, and which of them there are."""
    f = tl.arange(0, F)
    p = tl.arange(0, P)
    return (((n * classes + p[None, :]) * U + u) * K + k) * F + f[:, None], p[None, :] < classes


@triton.jit
def active(hidden, FOLDS: tl.constexpr):
    """f of hidden units: what is below zero is folded up, or cut off."""
    return tl.abs(hidden) if FOLDS else tl.maximum(hidden, 0.0)


@triton.jit
def through(hidden, back, FOLDS: tl.constexpr):
    """The gradient ``back`` of f's result as that of hidden units; at zero there is none."""
    result = tl.where(hidden > 0, back, 0.0)
    if FOLDS:
        result = tl.where(hidden < 0, -back, result)
    return result


@triton.jit
def logits_kernel(
    z, w, d, out, K, U, B, classes, heads,
    C: tl.constexpr, F: tl.constexpr, P: tl.constexpr,
    C1: tl.constexpr, C2: tl.constexpr, ROWS: tl.constexpr, FOLDS: tl.constexpr,
):  # fmt: skip
    """out (N, splits, B, P): f(z w) d, summed over the nodes of the split's heads."""
    n = tl.program_id(0).to(tl.int64)
    split = tl.program_id(2)
    b = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    p = tl.arange(0, P)
    total = tl.zeros((ROWS, P), dtype=tl.float32)
    for k in range(split * heads, tl.minimum((split + 1) * heads, K)):
        w1 = filters_of(w, n * K + k, 0, C, F, C1)
        if C2 > 0:
            w2 = filters_of(w, n * K + k, C1, C, F, C2)
        for u in range(U):
            unit = (n * K + k) * U + u
            row = unit * B + b
            hidden = tl.dot(part(z, row, b, 0, C, C1, B), w1)
            if C2 > 0:
                z2 = part(z, row, b, C1, C, C2, B)
                hidden = tl.dot(z2, w2, hidden)
            hidden = active(hidden, FOLDS).to(w1.dtype)
            at, there = dense_at(n, u, k, U, K, classes, F, P)
            dense = tl.load(d + at, mask=there, other=0.0)
            total = tl.dot(hidden, dense, total)
    row = (n * tl.num_programs(2) + split) * B + b[:, None]
    tl.store(out + row * P + p[None, :], total, mask=b[:, None] < B)


@triton.jit
def gradients_kernel(
    z, w, d, g, dz, dw, dd, K, U, B, classes, nodes,
    C: tl.constexpr, F: tl.constexpr, P: tl.constexpr,
    C1: tl.constexpr, C2: tl.constexpr, ROWS: tl.constexpr, FOLDS: tl.constexpr,
):  # fmt: skip
    """From g (N, B, P), the logits' gradient: dz as z, dd as d, dw (N, K, groups, C, F)."""
    n = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1)
    group = tl.program_id(2)
    f = tl.arange(0, F)
    p = tl.arange(0, P)
    w1 = filters_of(w, n * K + k, 0, C, F, C1)
    for_w1 = tl.zeros((C1, F), dtype=tl.float32)
    if C2 > 0:
        w2 = filters_of(w, n * K + k, C1, C, F, C2)
        for_w2 = tl.zeros((C2, F), dtype=tl.float32)
    for u in range(group * nodes, tl.minimum((group + 1) * nodes, U)):
        unit = (n * K + k) * U + u
        at, there = dense_at(n, u, k, U, K, classes, F, P)
        dense = tl.load(d + at, mask=there, other=0.0)
        for_dense = tl.zeros((F, P), dtype=tl.float32)
        for start in range(0, B, ROWS):
            b = start + tl.arange(0, ROWS)
            row = unit * B + b
            z1 = part(z, row, b, 0, C, C1, B)
            hidden = tl.dot(z1, w1)
            if C2 > 0:
                z2 = part(z, row, b, C1, C, C2, B)
                hidden = tl.dot(z2, w2, hidden)
            coming = tl.load(
                g + (n * B + b[:, None]) * P + p[None, :], mask=b[:, None] < B, other=0.0
            )
            back = tl.dot(coming, tl.trans(dense))
            back = through(hidden, back, FOLDS).to(w1.dtype)
            hidden = active(hidden, FOLDS).to(w1.dtype)
            for_dense = tl.dot(tl.trans(hidden), coming, for_dense)
            for_w1 = tl.dot(tl.trans(z1), back, for_w1)
            dz1 = tl.dot(back, tl.trans(w1))
            put(dz, row, b, 0, C, C1, B, dz1.to(w1.dtype))
            if C2 > 0:
                for_w2 = tl.dot(tl.trans(z2), back, for_w2)
                dz2 = tl.dot(back, tl.trans(w2))
                put(dz, row, b, C1, C, C2, B, dz2.to(w1.dtype))
        tl.store(dd + at, for_dense, mask=there)
    rows = ((n * K + k) * tl.num_programs(2) + group) * C
    c = tl.arange(0, C1)
    tl.store(dw + (rows + c[:, None]) * F + f[None, :], for_w1, mask=c[:, None] < C)
    if C2 > 0:
        c = C1 + tl.arange(0, C2)
        tl.store(dw + (rows + c[:, None]) * F + f[None, :], for_w2, mask=c[:, None] < C)


@triton.jit
def attention_kernel(
    dz, x, out, rows, columns, span,
    V: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """out (N, splits, rows, V): dz (N, rows, columns) times x (N, V, columns) transposed."""
    n = tl.program_id(0).to(tl.int64)
    split = tl.program_id(2)
    r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    v = tl.arange(0, V)
    total = tl.zeros((ROWS, V), dtype=tl.float32)
    for start in range(split * span, tl.minimum((split + 1) * span, columns), COLUMNS):
        at = start + tl.arange(0, COLUMNS)
        left = tl.load(
            dz + (n * rows + r[:, None]) * columns + at[None, :],
            mask=(r[:, None] < rows) & (at[None, :] < columns), other=0.0,
        )  # fmt: skip
        right = tl.load(
            x + (n * V + v[None, :]) * columns + at[:, None], mask=at[:, None] < columns, other=0.0
        )
        total = tl.dot(left, right, total)
    row = (n * tl.num_programs(2) + split) * rows + r[:, None]
    tl.store(out + row * V + v[None, :], total, mask=r[:, None] < rows)
