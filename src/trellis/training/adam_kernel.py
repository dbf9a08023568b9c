"""A Triton kernel that does `adam.update` in one pass over memory."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def update_kernel(
    weight, gradient, mean, square, mask, rates, warmth,
    connections, momentum, squares, decay, tiny,
    MASKED: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Update SIZE connections of a parameter (networks, connections); grid: (blocks, networks)."""
    network = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < connections
    at += network * connections
    g = tl.load(gradient + at, mask=inside, other=0.0)
    if MASKED:
        g = tl.where(tl.load(mask + at, mask=inside, other=0) != 0, g, 0.0)
    w = tl.load(weight + at, mask=inside, other=0.0)
    m = tl.load(mean + at, mask=inside, other=0.0)
    s = tl.load(square + at, mask=inside, other=0.0)
    m += (1 - momentum) * (g - m)
    s = squares * s + (1 - squares) * g * g
    deviation = tl.sqrt(s / tl.load(warmth + 1)) + tiny
    change = m / tl.load(warmth) / deviation + decay * w
    tl.store(weight + at, w - tl.load(rates + network) * change, mask=inside)
    tl.store(mean + at, m, mask=inside)
    tl.store(square + at, s, mask=inside)
