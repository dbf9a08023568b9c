"""Softmax and attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..builder import TRUE, Builder
from ..einsum import einsum
from ..registry import aten, rules_for
from ..steps import Signal, Value
from .arithmetic import add, as_signal


@rules_for(aten("softmax _softmax _safe_softmax"))
def softmax(build: Builder, x: Signal, dim: int, *args: Any, **kwargs: Any) -> Signal:
    """Never zero, so that values survive dead scores; zero where the score is −∞. What all
    scores that are not −∞ have in common is removed."""
    if not x.ndim:
        return build.constant(torch.ones(()))
    seen = None
    if x.blocked is not None:
        # A row that is blocked throughout is shifted, not masked.
        blocked = x.blocked.expand(x.shape)
        seen = ~(blocked & ~blocked.all(dim, keepdim=True))
    x = build.centre(x, [dim], seen)
    if seen is not None:
        x = build.block(x, seen)
    out = build.bias(build.even_mix(x, [dim]))
    if seen is not None:
        out = build.block(out, seen)
    return build.sums_to_one(out, dim, seen)


@rules_for(aten("log_softmax _log_softmax"))
def log_softmax(build: Builder, x: Signal, dim: int, *args: Any, **kwargs: Any) -> Signal:
    """As a softmax; zero where there is a single entry."""
    out = build.even_mix(build.centre(x, [dim]), [dim]) if x.ndim else x
    return build.bias(out) if x.ndim and x.shape[dim] > 1 else build.block(out, ~TRUE)


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
    if isinstance(attn_mask, Tensor) and attn_mask.dtype == torch.bool:
        if bool((~attn_mask).any()):
            scores = build.blocked(scores, ~attn_mask)
    elif attn_mask is not None:  # added: a constant, a learned bias or a signal
        scores = add(build, scores, attn_mask)
    return einsum(build, "...ls,...sd->...ld", [softmax(build, scores, -1), v])
