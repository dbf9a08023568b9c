"""Stacks of one depth and any width: the number of weights is chosen, the graph stays the same."""

from __future__ import annotations

from collections.abc import Callable

import torch
from models import MLP
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """A transformer block, pre-norm: (batch, tokens, width) -> the same, 12 width² weights."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.before_attention(x)).view(batch, tokens, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (batch, heads, tokens, width/heads)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, tokens, width))
        out: Tensor = x + self.down(F.gelu(self.up(self.before_mlp(x))))
        return out


def mlp(weights: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Sixteen square matrices, about `weights` in all, and an input at batch 1.

    >>> model, _ = mlp(1_000_000)
    >>> sum(p.numel() for p in model.parameters())
    1000000
    """
    width = round((weights / 16) ** 0.5)
    return MLP(*[width] * 17), (torch.randn(1, width),)


def transformer(weights: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Twelve blocks of eight heads, about `weights` in all, and an input of 16 tokens.

    >>> model, (x,) = transformer(1_000_000)
    >>> model(x).shape
    torch.Size([1, 16, 80])
    """
    width = 8 * round((weights / 144) ** 0.5 / 8)
    return nn.Sequential(*(Block(width, 8) for _ in range(12))), (torch.randn(1, 16, width),)


STACKS: dict[str, Callable[[int], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "mlp": mlp,
    "transformer": transformer,
}
