"""Softmax and attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..builder import Builder, minus_infinity
from ..einsum import einsum
from ..registry import aten, rules_for
from ..values import Signal, Value
from .arithmetic import as_signal


@rules_for(aten("softmax _softmax _safe_softmax"))
def softmax(build: Builder, x: Signal, dim: int, *args: Any, **kwargs: Any) -> Signal:
    """Never zero, so that values survive dead scores; zero where the score is −∞."""
    blocked = x.blocked
    if blocked is not None:
        # A row that is blocked throughout is shifted, not masked.
        blocked = blocked.expand(x.shape)
        blocked = blocked & ~blocked.all(dim, keepdim=True)
        x = build.block(x, ~blocked)
    out = build.bias(build.mix(x, [dim])) if x.ndim else build.bias(x)
    return out if blocked is None else build.block(out, ~blocked)


@rules_for(aten("log_softmax _log_softmax"))
def log_softmax(build: Builder, x: Signal, dim: int, *args: Any, **kwargs: Any) -> Signal:
    return build.bias(build.mix(x, [dim]))


@rules_for(aten("scaled_dot_product_attention"))
def attention(
    build: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Signal:
    """softmax(q kᵀ + mask) v: q (..., L, D), k (..., S, D), v (..., S, E)."""
    q, k, v = (as_signal(build, t) for t in (query, key, value))
    if enable_gqa:
        times = q.shape[-3] // k.shape[-3]
        heads = torch.arange(k.shape[-3]).repeat_interleave(times)
        k, v = (build.gather(t, -3, heads) for t in (k, v))
    scores = einsum(build, "...ld,...sd->...ls", [q, k])
    if is_causal:
        allowed = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        scores = build.blocked(scores, ~allowed)
    if isinstance(attn_mask, Tensor):
        never = ~attn_mask if attn_mask.dtype == torch.bool else minus_infinity(attn_mask)
        if never is not None and bool(never.any()):
            scores = build.blocked(scores, never)
    elif isinstance(attn_mask, Signal):
        scores = build.join(scores, attn_mask)
    elif attn_mask is not None:  # a learned bias on the scores
        scores = build.bias(scores)
    return einsum(build, "...ls,...sd->...ld", [softmax(build, scores, -1), v])
