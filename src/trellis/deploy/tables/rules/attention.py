"""Softmax and attention, built from maxima, exponentials and sums of products."""

from __future__ import annotations

import math
from typing import Any

import torch

from ....errors import TrellisError
from ..activation import Activation
from ..network import Network, Signal, lowers
from .arithmetic import add, amax, expanded, mul, reduced, sub
from .contraction import matmul


def _exponentials(net: Network, x: Signal, dim: int) -> tuple[Signal, Signal, Signal]:
    """Return x minus its maximum, the exponentials of that, and their sums."""
    shifted = sub(net, x, expanded(amax(net, x, dim, keepdim=True), x.shape))
    powers = net.each(shifted, act=Activation("exp"))
    return shifted, powers, reduced(net, powers, dim, True, mean=False)


@lowers("softmax _softmax")
def softmax(net: Network, x: Signal, dim: int, *_: Any) -> Signal:
    _shifted, powers, sums = _exponentials(net, x, dim)
    return mul(net, powers, expanded(net.each(sums, act=Activation("reciprocal")), x.shape))


@lowers("log_softmax _log_softmax")
def log_softmax(net: Network, x: Signal, dim: int, *_: Any) -> Signal:
    shifted, _powers, sums = _exponentials(net, x, dim)
    return sub(net, shifted, expanded(net.each(sums, act=Activation("log")), x.shape))


@lowers("scaled_dot_product_attention")
def attention(
    net: Network, query: Signal, key: Signal, value: Signal, attn_mask: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: Any = None,
    enable_gqa: bool = False,
) -> Signal:  # fmt: skip
    if enable_gqa or isinstance(attn_mask, Signal):
        raise TrellisError("attention with grouped queries or a mask computed from the input")
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    scores = matmul(net, query, Signal(key.ids.transpose(-2, -1)))
    scores = net.each(scores, factor)
    if is_causal:
        n, m = scores.shape[-2:]
        attn_mask = torch.ones(n, m, dtype=torch.bool).tril()
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, -1e30)
        scores = add(net, scores, attn_mask.clamp(min=-1e30))
    return matmul(net, softmax(net, scores, -1), value)
