"""In many small steps or in few large ones: the same masks, and few steps are few."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.oracle.networks import random_network
from tests.paths.launches import Launches
from tests.training.networks import OPTIONS, gcn
from tests.zoo import ZOO
from trellis import Pruner, Schedule, Trellis, audit, prune, trace
from trellis.errors import TrellisError
from trellis.paths import kernels
from trellis.paths.kernels import as_on_gpu
from trellis.skeleton import GCN

from .unmasked import unmasked

COVERING = 600  # steps
WAYS: list[dict[str, Any]] = [
    {},
    {"stochastic": True, "seed": 3},
    {"method": "magnitude", "consistent": True},
    {"method": "magnitude", "scope": "layer"},
    {"method": "random", "consistent": True, "cover_outputs": False},
]


def found(net: Trellis, **options: Any) -> object:
    """What pruning gives, and what the audit says of it; or the error."""
    model = unmasked(net)
    try:
        masks = prune(model, **options)
    except TrellisError as error:
        return str(error)
    return {name: mask.tolist() for name, mask in masks.items()}, audit(model).to_dict()


@pytest.mark.parametrize("seed", range(30))
def test_random_networks_are_pruned_alike(seed: int) -> None:
    network = random_network(seed)
    net = trace(network.model, network.inputs)
    for place, sparsity in enumerate((0.3, 0.6, 0.8)):
        options = WAYS[(seed + place) % len(WAYS)]
        small = found(net, sparsity=sparsity, **options)
        with as_on_gpu():
            assert found(net, sparsity=sparsity, **options) == small


@pytest.mark.parametrize("large", [64, 5_000, 1 << 26])
@pytest.mark.parametrize(
    "name", ["resnet18", "unet", "vit", "gpt2", "stgcn", "gcn", "squeeze_excite"]
)
def test_architectures_are_pruned_alike_in_steps_of_any_size(
    name: str, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = ZOO[name]()
    net = trace(model, inputs)
    small = found(net, sparsity=0.95)
    monkeypatch.setattr(kernels, "LARGE", large)
    with as_on_gpu():
        assert found(net, sparsity=0.95) == small


def renewals(model: nn.Module, regrow: float) -> list[Any]:
    """Masks after each renewal of a short training."""
    x = torch.randn(8, 5, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = Schedule("cubic", end=6)
    pruner = Pruner(model, x[:1], sparsity=0.9, schedule=schedule, regrow=regrow)
    masks = []
    while not pruner.done:
        optimizer.zero_grad()
        F.cross_entropy(model(x), torch.arange(8) % 4).backward()
        optimizer.step()
        pruner.step()
        masks.append({name: mask.tolist() for name, mask in pruner.masks.items()})
    return masks


@pytest.mark.parametrize("regrow", [0.0, 0.4])
@pytest.mark.parametrize("kind", OPTIONS)
def test_masks_are_renewed_alike(kind: str, regrow: float) -> None:
    model = gcn(1, **OPTIONS[kind])
    small = renewals(copy.deepcopy(model), regrow)
    with as_on_gpu():
        assert renewals(model, regrow) == small


@pytest.mark.parametrize(
    ("method", "regrow", "steps", "questions", "most"),
    [
        ("viterbi", 0.0, 230, 20, 830),
        ("viterbi", 0.3, 320, 26, 830),
        # On an untrained network, many of the largest magnitudes are dead: more audits.
        ("closed", 0.0, 1_700, 130, 2_600),
        ("closed", 0.3, 1_900, 145, 2_600),
    ],
)
def test_a_renewal_on_the_papers_network_takes_few_steps(
    method: str, regrow: float, steps: int, questions: int, most: int
) -> None:
    model = GCN()
    x, y = torch.randn(4, 21, 96), torch.arange(4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    counted = []
    with as_on_gpu():
        schedule = Schedule("geometric", end=5)
        pruner = Pruner(
            model, x[:1], sparsity=0.999, schedule=schedule, regrow=regrow, method=method
        )
        while not pruner.done:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            with Launches() as launches:
                renewal = pruner.step()
            assert renewal is not None
            assert audit(pruner.net).live == renewal.kept == renewal.budget
            counted.append((launches.steps.total(), launches.questions.total()))
    # The first has no masks to begin with, and looks for the best in another way. What a renewal
    # takes depends on what it finds: one that has to look further takes about twice as much.
    usual = sorted(counted[1:])[len(counted[1:]) // 2]
    assert usual[0] <= steps
    assert usual[1] <= questions
    assert max(taken for taken, _ in counted) <= most


def test_outputs_are_covered_alike_and_in_few_steps() -> None:
    model = GCN()
    prune(model, torch.zeros(1, 21, 96), keep=3000, scope="global")
    small, large = (trace(copy.deepcopy(model), torch.zeros(1, 21, 96)) for _ in range(2))
    # Too few for the best connections to reach all outputs.
    masks = prune(small, keep=150, method="viterbi")
    with as_on_gpu(), Launches() as launches:
        found = prune(large, keep=150, method="viterbi")
    assert all(torch.equal(mask, found[name]) for name, mask in masks.items())
    assert launches.steps.total() <= COVERING
