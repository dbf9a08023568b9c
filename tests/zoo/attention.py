"""Attention: torch's own module, and one written by hand with a causal mask."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .seeded import Example, seeded, settle


class AttentionBlock(nn.Module):
    """nn.MultiheadAttention, added and normed, then a dense pair, added and normed."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm1 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.attention(x, x, x, need_weights=False)
        x = self.norm1(x + y)
        return self.norm2(x + self.down(F.gelu(self.up(x))))


@seeded
def multihead_attention() -> Example:
    """x [1, 5, 8] -> [1, 5, 8]."""
    return settle(AttentionBlock(8, 2)), (torch.randn(1, 5, 8),)


class BareAttention(nn.Module):
    """nn.MultiheadAttention alone, its averaged attention an output too."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self.attention(x, memory, memory)


@seeded
def cross_attention() -> Example:
    """x [1, 3, 8], memory [1, 4, 8] -> [1, 3, 8], [1, 3, 4]."""
    return BareAttention(8, 2), (torch.randn(1, 3, 8), torch.randn(1, 4, 8))


class CausalAttention(nn.Module):
    """Self-attention by hand: what is masked becomes -inf, then softmax."""

    mask: Tensor

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.register_buffer("mask", torch.ones(length, length).tril() == 0)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(self.mask[:length, :length], float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v  # [batch, heads, length, width / heads]
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


@seeded
def causal_attention() -> Example:
    """x [1, 5, 8] -> [1, 5, 8]."""
    return CausalAttention(8, 2, 6), (torch.randn(1, 5, 8),)


@seeded
def transformer_encoder() -> Example:
    """nn.TransformerEncoder of two layers, norm first; x [1, 4, 8] -> [1, 4, 8]."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return settle(model), (torch.randn(1, 4, 8),)
