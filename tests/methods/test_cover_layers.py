"""No layer is lost: every parameter that lives in the unpruned network keeps live connections."""

import re
from typing import Any

import pytest
import torch
from torch import nn

import trellis
from tests.oracle.random_models import random_model
from tests.zoo import ZOO
from trellis.errors import TrellisError

from .unmasked import unmasked

METHODS: list[dict[str, Any]] = [{"method": "viterbi"}, {"method": "magnitude", "consistent": True}]


class Skipping(nn.Module):
    """Blocks around which a wire leads."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(blocks)
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def living(net: trellis.Trellis) -> set[str]:
    return {layer.name for layer in trellis.audit(net).layers if layer.live}


def least(net: trellis.Trellis, **options: Any) -> int:
    with pytest.raises(TrellisError) as caught:
        trellis.prune(unmasked(net), keep=1, **options)
    return int(re.findall(r"keep=(\d+) works", str(caught.value))[0])


@pytest.mark.parametrize("options", METHODS, ids=["viterbi", "magnitude"])
@pytest.mark.parametrize("name", ["gpt2", "bert_eager", "squeeze_excite", "swiglu",
                                  "cross_attention", "stgcn", "densenet_block"])  # fmt: skip
def test_every_layer_of_a_real_architecture_stays_alive(name: str, options: dict[str, Any]) -> None:
    model, inputs = ZOO[name]()
    net = trellis.trace(model, inputs)
    before = living(net)
    budget = max(net.total // 200, least(net, **options))
    masks = trellis.prune(unmasked(net), keep=budget, **options)
    found = trellis.audit(net)
    assert living(net) == before and found.live == found.kept == masks.kept == budget
    assert found.outputs_reached == found.outputs


@pytest.mark.parametrize("seed", [s for s in range(26) if s not in (6, 9, 10, 17)])
def test_every_layer_of_a_random_attention_network_stays_alive(seed: int) -> None:
    """At the budget that the error names, and at a larger one."""
    model, inputs = random_model(seed)
    net = trellis.trace(model, inputs)
    before = living(net)
    options = METHODS[seed % 2]
    try:
        trellis.prune(unmasked(net), keep=1, **options)
    except TrellisError as error:
        if "disconnected" in str(error):
            return
        start = int(re.findall(r"keep=(\d+) works", str(error))[0])
    else:
        start = 1
    for budget in {start, (start + net.total) // 2}:
        masks = trellis.prune(unmasked(net), keep=budget, **options)
        found = trellis.audit(net)
        assert living(net) == before
        assert found.kept == found.live == masks.kept <= budget


def test_layers_may_be_lost_on_request() -> None:
    model = Skipping()
    with torch.no_grad():
        for block in model.blocks:
            for p in block.parameters():
                p.mul_(1e-3)
    net = trellis.trace(model, torch.zeros(1, 6))
    trellis.prune(net, sparsity=0.9, method="viterbi", cover_layers=False)
    assert living(net) == {"stem.weight", "head.weight"}
    masks = trellis.prune(unmasked(net), sparsity=0.9, method="viterbi")
    assert living(net) == set(net.connections) and masks.kept == masks.budget
    assert masks.provenance["options"]["cover_layers"] is True


def test_gradual_pruning_keeps_every_layer() -> None:
    torch.manual_seed(0)
    model = Skipping()
    with torch.no_grad():
        model.get_parameter("blocks.1.0.weight").mul_(1e-4)
    x = torch.randn(16, 6)
    schedule = trellis.Schedule("cubic", end=6, every=2)
    pruner = trellis.Pruner(model, x, sparsity=0.9, schedule=schedule, method="viterbi")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while not pruner.done:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        pruner.step()
        found = trellis.audit(pruner.net)
        assert all(layer.live for layer in found.layers) and found.live == found.kept
    assert pruner.kept == pruner.budget
