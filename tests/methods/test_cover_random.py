"""`cover_layers` on random networks with skips, beside an oracle that knows no rules.

All weights are made positive and all curves are left out. Then no two paths cancel, and a kept
weight is live if and only if the sum of all outputs has a gradient at it.
"""

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import trellis
from trellis.errors import TrellisError

from .unmasked import unmasked

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"scope": "lamp"},
    {"scope": "erk"},
    {"scope": "balanced"},
    {"method": "viterbi"},
    {"method": "random", "consistent": True},
)


class Skips(nn.Module):
    """Random layers; each reads the last value, and adds or appends an earlier one."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.width = chance.randint(1, 5)
        widths = [self.width]
        self.layers = nn.ModuleList()
        self.joins: list[tuple[str, int]] = []
        for _ in range(chance.randint(1, 6)):
            place = chance.randrange(len(widths))
            kind = chance.choice(["plain", "add", "append", "add"])
            wide = widths[place] if kind == "add" else chance.randint(1, 5)
            self.layers.append(nn.Linear(widths[-1], wide, bias=False))
            self.joins.append((kind, place))
            widths.append(wide + widths[place] if kind == "append" else wide)
        self.layers.append(nn.Linear(widths[-1], chance.randint(1, 4), bias=False))

    def forward(self, x: Tensor) -> Tensor:
        weights: list[Any] = [layer.weight for layer in self.layers]
        return self.run(x, weights)

    def run(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        values = [x]
        for weight, (kind, place) in zip(weights, self.joins, strict=False):
            found = F.linear(values[-1], weight)
            if kind == "add":
                found = found + values[place]
            elif kind == "append":
                found = torch.cat([found, values[place]], -1)
            values.append(found)
        return F.linear(values[-1], weights[-1])


def live(model: Skips, kept: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the live connections, and which outputs are reached."""
    names = [f"layers.{number}.weight" for number in range(len(model.layers))]
    weights = [kept[name].double().requires_grad_() for name in names]
    found = model.run(torch.ones(1, model.width, dtype=torch.float64), weights)
    slopes = torch.autograd.grad(found.sum(), weights, materialize_grads=True)
    alive = {n: (g > 0) & kept[n] for n, g in zip(names, slopes, strict=True)}
    return alive, found[0] > 0


def draws(seed: int, many: int) -> Iterator[tuple[trellis.Trellis, dict[str, Any], int]]:
    """Yield a network with new weights, options and a budget; some weights are zero."""
    chance = random.Random(seed)
    net = trellis.trace(model := Skips(chance), torch.zeros(1, model.width))
    for _ in range(many):
        generator = torch.Generator().manual_seed(chance.getrandbits(32))
        for layer in unmasked(net).model.parameters():
            scale = 10 ** chance.uniform(-3, 0)
            with torch.no_grad():
                layer.copy_(torch.randn(layer.shape, generator=generator) * scale)
                if chance.random() < 0.3:
                    layer.mul_(torch.rand(layer.shape, generator=generator) < 0.6)
        options = chance.choice(OPTIONS) | {"seed": chance.randrange(9)}
        yield net, options, chance.randint(1, net.total)


@pytest.mark.parametrize("seed", range(20))
def test_no_layer_is_lost(seed: int) -> None:
    for net, options, budget in draws(seed, 50):
        model = net.model
        assert isinstance(model, Skips)
        given = {name: weight != 0 for name, weight in model.named_parameters()}
        for name, mask in given.items():
            if not mask.any():  # untrained: all of it may be kept
                given[name] = torch.ones_like(mask)
        before, reached = live(model, given)
        try:
            masks = trellis.prune(net, keep=budget, **options)
        except TrellisError as error:
            if not reached.any():
                assert "disconnected" in str(error)
                continue
            budget = int(re.findall(r"keep=(\d+) works", str(error))[0])
            masks = trellis.prune(net, keep=budget, **options)
        after, still = live(model, masks)
        assert masks.kept <= budget
        assert all(torch.equal(after[name], masks[name]) for name in masks)
        assert torch.equal(still, reached)
        for name in masks:
            assert after[name].any() == before[name].any(), name
            assert not (masks[name] & ~given[name]).any()
