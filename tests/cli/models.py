"""Targets for the command line, named as ``tests.cli.models:…``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

NOT_A_MODEL = 3


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32, bias=False), nn.ReLU(), nn.Linear(32, 4, bias=False))


def talkative() -> nn.Module:
    print("a model that talks")
    return mlp()


def half_dead() -> nn.Module:
    """Two of four connections of the first layer lead nowhere; live are 3 of 5."""
    first, last = nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        first.weight.fill_(1)
        last.weight.copy_(torch.tensor([[1.0, 0.0]]))
    return nn.Sequential(first, last)


def nan_bias() -> nn.Module:
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.bias[0] = torch.nan
    return model


class Tied(nn.Module):
    """An embedding whose table is also the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.middle = nn.Linear(8, 8)
        self.last = nn.Linear(8, 20, bias=False)
        self.last.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.last(torch.relu(self.middle(self.table(tokens))))
        return logits


class LongNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a_name_that_is_longer_than_most_and_then_some = nn.Linear(300, 300, bias=False)
        # Of so many random weights one may well be 0.0, and would not count as kept.
        nn.init.ones_(self.a_name_that_is_longer_than_most_and_then_some.weight)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.a_name_that_is_longer_than_most_and_then_some(x)
        return y


class Masked(nn.Module):
    """Attention-like: a float input, and an int64 one that says which entries count."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2, bias=False)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        y: Tensor = self.layer(x * seen.float())
        return y


def needs_an_argument(width: int) -> nn.Module:
    return nn.Linear(width, 1)


def raising() -> nn.Module:
    raise RuntimeError("the disk is on fire\nand so is the roof")


def leaving() -> nn.Module:
    raise SystemExit(0)


def number() -> int:
    return 3


ready = mlp()
