"""Small GCNs of every kind, and data for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trellis.skeleton import GCN

NODES, CHANNELS, CLASSES = 5, 6, 4
LINE = torch.eye(NODES) + torch.diag(torch.ones(NODES - 1), 1)  # joints in a row, one way

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shared": {"shared": True},
    "sum": {"combine": "sum"},
    "two blocks": {"blocks": 2},
    "bias": {"bias": True},
    "abs": {"activation": "abs"},
    "limit": {"adjacency": LINE},
    "start": {"adjacency": LINE, "edges": "start"},
    "fixed": {"adjacency": LINE, "edges": "fixed"},
    "all": {
        "shared": True,
        "combine": "sum",
        "blocks": 3,
        "bias": True,
        "activation": "abs",
        "adjacency": LINE,
    },
}


def gcn(seed: int, heads: int = 3, filters: int = 7, **options: Any) -> GCN:
    torch.manual_seed(seed)
    made = GCN(NODES, CHANNELS, CLASSES, heads, filters, **options)
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):  # which begin as zeros, and would then test nothing
            torch.nn.init.normal_(parameter)
    return made.double()


def recordings(count: int, seed: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, NODES, CHANNELS, generator=generator, dtype=torch.float64)
    return x, torch.randint(CLASSES, (count,), generator=generator)


def some_masks(seed: int, model: GCN, share: float = 0.5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(parameter.shape, generator=generator) < share
        for name, parameter in model.named_parameters()
        if not name.endswith("bias")
    }
