"""Stacks of one depth and any width: the number of weights is chosen, the graph stays the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

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


def llama(weights: int) -> tuple[nn.Module, dict[str, Tensor]]:
    """A decoder of the shape of Llama from transformers: 16 layers, and an input of 16 tokens.

    A head has 64 channels, four queries share keys and values, and the vocabulary has 32,000 words.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    # 16 layers of 14.5 width² weights, an embedding and a head
    width = (math.sqrt(64_000**2 + 4 * 232 * weights) - 64_000) / (2 * 232)
    width = 256 * max(round(width / 256), 1)
    config = LlamaConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=16,
        num_attention_heads=width // 64, num_key_value_heads=width // 256, vocab_size=32_000,
        tie_word_embeddings=False,
    )  # fmt: skip
    decoder: Any = LlamaForCausalLM
    return decoder(config), {"input_ids": torch.arange(16)[None]}


STACKS: dict[str, Callable[[int], tuple[nn.Module, Any]]] = {
    "mlp": mlp,
    "transformer": transformer,
}
