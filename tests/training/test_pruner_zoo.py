"""Networks that are not ours: trained and pruned to 98 %, the guarantee intact at every renewal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import trellis
from trellis import Pruner, Schedule

from ..zoo import ZOO
from ..zoo.graph import STGCN
from .gradual import guaranteed


def stgcn() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A block with more weights than outputs; 98 % of the zoo's is less than its outputs take."""
    return STGCN(16, 16, 3, 10, learned=True), (torch.randn(1, 16, 6, 10),)


NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "resnet18": ZOO["resnet18"],
    "vit": ZOO["vit"],
    "stgcn": stgcn,
}


@pytest.mark.parametrize("regrow", [0.0, 0.3])
@pytest.mark.parametrize("name", NETWORKS)
def test_trained_and_pruned_to_98_percent(name: str, regrow: float) -> None:
    model, inputs = NETWORKS[name]()
    model.train()
    # From 70 %: six in ten weights of so small a ResNet only ever see padding.
    schedule = Schedule("cubic", end=6, every=2, initial_sparsity=0.7)
    pruner = Pruner(model, inputs, sparsity=0.98, schedule=schedule, regrow=regrow)
    guaranteed(pruner)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    generator = torch.Generator().manual_seed(0)
    shape = inputs[0].shape[1:]
    renewals = 0
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(4, *shape, generator=generator)).square().mean().backward()
        optimizer.step()
        if pruner.step():
            guaranteed(pruner)
            renewals += 1
    assert renewals == 3 and pruner.done and model.training
    assert pruner.kept == pruner.total - -(-pruner.total * 98 // 100)
    assert trellis.audit(model.eval(), inputs).live_fraction == 1.0
