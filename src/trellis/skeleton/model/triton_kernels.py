"""Triton kernels of the GCN, in bfloat16, and in float32 by pairs of 16-bit halves.

Hidden units are computed where they are used and never stored. For float32, tensor cores multiply
16-bit numbers eight times as fast as other units multiply float32, and a float32 is nearly two of
them: ``a = high + low / 2^11``, 11 bits each. Then

    a b = high high + (high low + low high) / 2^11   (the omitted term is 2^-22 of it)

with all sums in float32. Without ``PAIRS``, numbers are rounded to 11 bits, as in TF32. A 16-bit
float has few exponents: hence the factor 2^11, and every tensor is scaled by a power of two so that
its largest value is below 2^15. ``factors`` (N, …) convert between scales.
"""

from __future__ import annotations

import triton
import triton.language as tl

# At batch 600 a network has 26 million hidden values. Writing and reading them several times a step
# would dominate the cost of training. The kernels compute a tile of them from the mixed inputs
# ``z``, and use it at once. Shapes: z (N, K, U, B, C), w (N, K, C, F), d (N, classes, U, K, F):
# N networks, K heads, U nodes, B recordings, C channels, F filters.
#
# A tile's sides are powers of two: classes are padded to P, and channels read in two parts, so that
# 96 is 64 and 32.


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
    """Return the gradient of hidden units from that of f's result; it is 0 at 0."""
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


@triton.jit
def product(high, low, other_high, other_low, PAIRS: tl.constexpr):
    """Two matrices of pairs, multiplied; what is small is summed first."""
    if PAIRS:
        total = tl.dot(low, other_high)
        total = tl.dot(high, other_low, total)
        total = tl.dot(high, other_high, total * (1 / 2048))
    else:
        total = tl.dot(high, other_high)
    return total


@triton.jit
def scaled_product(high, low, other_high, other_low, factor, PAIRS: tl.constexpr):
    """`product` times a factor, for 64 rows: Triton lets both halves of 8 warps make the same 64,
    where one product goes on from another's sum, so here none does."""
    total = tl.dot(high, other_high) * factor
    if PAIRS:
        total += tl.dot(low, other_high) * (factor * (1 / 2048))
        total += tl.dot(high, other_low) * (factor * (1 / 2048))
    return total


@triton.jit
def halves(value):
    """A float32 as its high and its low half."""
    high = value.to(tl.float16)
    return high, ((value - high.to(tl.float32)) * 2048).to(tl.float16)


@triton.jit
def split_kernel(values, scales, high, low, size, PAIRS: tl.constexpr, SIZE: tl.constexpr):
    """values (N, size) times scales (N,), as halves."""
    n = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < size
    at += n * size
    h, l = halves(tl.load(values + at, mask=inside, other=0.0) * tl.load(scales + n))  # noqa: E741
    tl.store(high + at, h, mask=inside)
    if PAIRS:
        tl.store(low + at, l, mask=inside)


@triton.jit
def recordings(x, n, v, V, columns, at, C: tl.constexpr):
    """Of x (N, B, V, C), nodes v and columns ``at`` (recording, then channel), and whether there
    are such."""
    inside = (v < V) & (at < columns)
    where = n * columns * V + (at // C) * (V * C) + v * C + at % C
    return tl.load(x + where, mask=inside, other=0.0)


@triton.jit
def mix_kernel(
    attention, x, scales, high, low, rows, V, columns,
    C: tl.constexpr, NODES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PAIRS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """z (N, rows, columns) as halves: attention (N, rows, V) times x (N, B, V, C)."""
    n = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    v = tl.arange(0, NODES)
    signal = recordings(x, n, v[:, None], V, columns, at[None, :], C)
    scale = tl.load(scales + n)
    for start in range(0, rows, ROWS):
        r = start + tl.arange(0, ROWS)
        mixing = tl.load(
            attention + (n * rows + r[:, None]) * V + v[None, :],
            mask=(r[:, None] < rows) & (v[None, :] < V), other=0.0,
        )  # fmt: skip
        h, l = halves(tl.dot(mixing, signal, input_precision=PRECISION) * scale)  # noqa: E741
        where = (n * rows + r[:, None]) * columns + at[None, :]
        inside = (r[:, None] < rows) & (at[None, :] < columns)
        tl.store(high + where, h, mask=inside)
        if PAIRS:
            tl.store(low + where, l, mask=inside)


@triton.jit
def pair_logits_kernel(
    z, z_low, w, w_low, d, d_low, factors, out, K, U, B, classes, heads,
    C: tl.constexpr, F: tl.constexpr, P: tl.constexpr,
    C1: tl.constexpr, C2: tl.constexpr, ROWS: tl.constexpr, PAIRS: tl.constexpr,
    FOLDS: tl.constexpr,
):  # fmt: skip
    """out (N, splits, B, P): f(z w) d, summed over the nodes of the split's heads."""
    n = tl.program_id(0).to(tl.int64)
    split = tl.program_id(2)
    b = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    p = tl.arange(0, P)
    for_hidden = tl.load(factors + n * 2)
    for_logits = tl.load(factors + n * 2 + 1)
    total = tl.zeros((ROWS, P), dtype=tl.float32)
    for k in range(split * heads, tl.minimum((split + 1) * heads, K)):
        head = n * K + k
        w1 = filters_of(w, head, 0, C, F, C1)
        if PAIRS:
            w1_low = filters_of(w_low, head, 0, C, F, C1)
        if C2 > 0:
            w2 = filters_of(w, head, C1, C, F, C2)
            if PAIRS:
                w2_low = filters_of(w_low, head, C1, C, F, C2)
        for u in range(U):
            row = (head * U + u) * B + b
            z1 = part(z, row, b, 0, C, C1, B)
            if C2 > 0:
                z2 = part(z, row, b, C1, C, C2, B)
            hidden = tl.zeros((ROWS, F), dtype=tl.float32)
            if PAIRS:
                hidden = tl.dot(part(z_low, row, b, 0, C, C1, B), w1, hidden)
                hidden = tl.dot(z1, w1_low, hidden)
                if C2 > 0:
                    hidden = tl.dot(part(z_low, row, b, C1, C, C2, B), w2, hidden)
                    hidden = tl.dot(z2, w2_low, hidden)
                hidden *= 1 / 2048
            hidden = tl.dot(z1, w1, hidden)
            if C2 > 0:
                hidden = tl.dot(z2, w2, hidden)
            h, h_low = halves(active(hidden, FOLDS) * for_hidden)
            at, there = dense_at(n, u, k, U, K, classes, F, P)
            dense = tl.load(d + at, mask=there, other=0.0)
            dense_low = dense
            if PAIRS:
                dense_low = tl.load(d_low + at, mask=there, other=0.0)
            # Added outside of the tensor cores, whose own sums round towards zero.
            total += product(h, h_low, dense, dense_low, PAIRS) * for_logits
    row = (n * tl.num_programs(2) + split) * B + b[:, None]
    tl.store(out + row * P + p[None, :], total, mask=b[:, None] < B)


@triton.jit
def pair_gradients_kernel(
    z, z_low, w, w_low, d, d_low, g, g_low, factors, dz, dw, dd, K, U, B, classes, nodes,
    C: tl.constexpr, F: tl.constexpr, P: tl.constexpr,
    C1: tl.constexpr, C2: tl.constexpr, ROWS: tl.constexpr, PAIRS: tl.constexpr,
    FOLDS: tl.constexpr,
):  # fmt: skip
    """From g (N, B, P), the logits' gradient: dz as z, dd as d, dw (N, K, groups, F, C).

    Hidden units stand in columns here, (F, ROWS): so they are multiplied from the registers in
    which they were made, and only ``back`` passes through shared memory.
    """
    n = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1)
    group = tl.program_id(2)
    f = tl.arange(0, F)
    p = tl.arange(0, P)
    for_hidden = tl.load(factors + n * 5)
    for_back = tl.load(factors + n * 5 + 1)
    to_dense = tl.load(factors + n * 5 + 2)
    to_w = tl.load(factors + n * 5 + 3)
    to_z = tl.load(factors + n * 5 + 4)
    head = n * K + k
    w1 = tl.trans(filters_of(w, head, 0, C, F, C1))  # F, C1
    w1_low = w1
    if PAIRS:
        w1_low = tl.trans(filters_of(w_low, head, 0, C, F, C1))
    for_w1 = tl.zeros((F, C1), dtype=tl.float32)
    if C2 > 0:
        w2 = tl.trans(filters_of(w, head, C1, C, F, C2))
        w2_low = w2
        if PAIRS:
            w2_low = tl.trans(filters_of(w_low, head, C1, C, F, C2))
        for_w2 = tl.zeros((F, C2), dtype=tl.float32)
    for u in range(group * nodes, tl.minimum((group + 1) * nodes, U)):
        at, there = dense_at(n, u, k, U, K, classes, F, P)
        dense = tl.load(d + at, mask=there, other=0.0)
        dense_low = dense
        if PAIRS:
            dense_low = tl.load(d_low + at, mask=there, other=0.0)
        for_dense = tl.zeros((F, P), dtype=tl.float32)
        for start in range(0, B, ROWS):
            b = start + tl.arange(0, ROWS)
            row = (head * U + u) * B + b
            z1 = part(z, row, b, 0, C, C1, B)
            z1_low = z1
            if PAIRS:
                z1_low = part(z_low, row, b, 0, C, C1, B)
            if C2 > 0:
                z2 = part(z, row, b, C1, C, C2, B)
                z2_low = z2
                if PAIRS:
                    z2_low = part(z_low, row, b, C1, C, C2, B)
            hidden = tl.zeros((F, ROWS), dtype=tl.float32)
            if PAIRS:
                hidden = tl.dot(w1, tl.trans(z1_low), hidden)
                hidden = tl.dot(w1_low, tl.trans(z1), hidden)
                if C2 > 0:
                    hidden = tl.dot(w2, tl.trans(z2_low), hidden)
                    hidden = tl.dot(w2_low, tl.trans(z2), hidden)
                hidden *= 1 / 2048
            hidden = tl.dot(w1, tl.trans(z1), hidden)
            if C2 > 0:
                hidden = tl.dot(w2, tl.trans(z2), hidden)
            where = (n * B + b[:, None]) * P + p[None, :]
            coming = tl.load(g + where, mask=b[:, None] < B, other=0.0)
            coming_low = coming
            if PAIRS:
                coming_low = tl.load(g_low + where, mask=b[:, None] < B, other=0.0)
            back = product(dense, dense_low, tl.trans(coming), tl.trans(coming_low), PAIRS)
            back, back_low = halves(through(hidden, back * for_back, FOLDS))
            h, h_low = halves(active(hidden, FOLDS) * for_hidden)
            # Added outside of the tensor cores, whose own sums round towards zero.
            for_dense += product(h, h_low, coming, coming_low, PAIRS) * to_dense
            for_w1 += product(back, back_low, z1, z1_low, PAIRS) * to_w
            if C2 > 0:
                for_w2 += product(back, back_low, z2, z2_low, PAIRS) * to_w
            across, across_low = tl.trans(back), tl.trans(back_low)
            dz1 = scaled_product(across, across_low, w1, w1_low, to_z, PAIRS)
            put(dz, row, b, 0, C, C1, B, dz1.to(dz.dtype.element_ty))
            if C2 > 0:
                dz2 = scaled_product(across, across_low, w2, w2_low, to_z, PAIRS)
                put(dz, row, b, C1, C, C2, B, dz2.to(dz.dtype.element_ty))
        tl.store(dd + at, for_dense, mask=there)
    rows = ((head * tl.num_programs(2) + group) * F + f[:, None]) * C
    c = tl.arange(0, C1)[None, :]
    tl.store(dw + rows + c, for_w1, mask=c < C)
    if C2 > 0:
        c = C1 + tl.arange(0, C2)[None, :]
        tl.store(dw + rows + c, for_w2, mask=c < C)


@triton.jit
def pair_attention_kernel(
    dz, x, out, rows, V, columns, span,
    C: tl.constexpr, NODES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """out (N, splits, rows, NODES): dz (N, rows, columns) times x (N, B, V, C), over columns."""
    n = tl.program_id(0).to(tl.int64)
    split = tl.program_id(2)
    r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    v = tl.arange(0, NODES)
    total = tl.zeros((ROWS, NODES), dtype=tl.float32)
    for start in range(split * span, tl.minimum((split + 1) * span, columns), COLUMNS):
        at = start + tl.arange(0, COLUMNS)
        left = tl.load(
            dz + (n * rows + r[:, None]) * columns + at[None, :],
            mask=(r[:, None] < rows) & (at[None, :] < columns), other=0.0,
        )  # fmt: skip
        right = recordings(x, n, v[None, :], V, columns, at[:, None], C)
        total = tl.dot(left.to(tl.float32), right, total, input_precision=PRECISION)
    row = (n * tl.num_programs(2) + split) * rows + r[:, None]
    tl.store(out + row * NODES + v[None, :], total, mask=r[:, None] < rows)
