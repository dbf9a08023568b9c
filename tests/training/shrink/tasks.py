"""Small models and data to shrink."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import trellis


def data(count: int = 96, features: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, features, generator=generator)
    return x, (x[:, 0] + x[:, 1] * x[:, 2] > 0).long()


def batches(size: int = 16) -> list[tuple[Tensor, Tensor]]:
    x, y = data()
    return list(zip(x.split(size), y.split(size), strict=True))


class Noisy:
    """Batches in a random order, with noise from all three global generators."""

    def __init__(self) -> None:
        self.x, self.y = data()

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for chosen in torch.randperm(96).split(16):
            noise = random.random() + float(np.random.rand()) + torch.rand(16, 8)
            yield self.x[chosen] + 0.1 * noise, self.y[chosen]


class Net(nn.Module):
    """Batch norm, dropout, and a layer that begins at zero."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 24), nn.BatchNorm1d(24)
        self.drop, self.second = nn.Dropout(0.1), nn.Linear(24, 16)
        self.last = nn.Linear(16, classes)
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.norm(self.first(x)).relu())
        found: Tensor = self.last(self.second(x).relu())
        return found


def net(seed: int = 0, classes: int = 2) -> nn.Module:
    torch.manual_seed(seed)
    return Net(classes)


def shrunk(model: nn.Module, loader: Any = None, **options: Any) -> trellis.Shrunk:
    given: dict[str, Any] = {"steps": 30, "progress": False, "updates": 4, "device": "cpu"}
    if not {"keep", "at_least"} & options.keys():
        given["sparsity"] = 0.9
    return trellis.shrink(model, Noisy() if loader is None else loader, **(given | options))


def same(one: nn.Module, other: nn.Module) -> None:
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
