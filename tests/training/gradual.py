"""A small network, a training loop, and what a renewal must leave behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trellis
from trellis.training.pruner import Renewal

IN, OUT = 12, 5


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(IN, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU(),
        nn.Linear(16, OUT),
    )  # fmt: skip


def example() -> Tensor:
    return torch.zeros(1, IN)


def batch(step: int, size: int = 16, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * seed + step)
    x = torch.randn(size, IN, generator=generator)
    return x, (x[:, :OUT] * 3).argmax(1)


def gradual(model: nn.Module, end: int = 8, every: int = 2, **options: Any) -> trellis.Pruner:
    options = {"sparsity": 0.9} | options
    schedule = trellis.Schedule("geometric", end=end, every=every)
    return trellis.Pruner(model, example(), schedule=schedule, **options)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)


def learn(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    pruner: trellis.Pruner,
    steps: range = range(8),
    watch: Callable[[Renewal], None] | None = None,
) -> None:
    """One optimizer step and one of the pruner for each of ``steps``."""
    for step in steps:
        x, y = batch(step)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        renewal = pruner.step()
        if renewal is not None and watch is not None:
            watch(renewal)


def guaranteed(pruner: trellis.Pruner) -> None:
    """Exactly the scheduled number of connections, all live, every output reached."""
    audit = trellis.audit(pruner.net)
    assert pruner.kept == pruner.budget == pruner.plan.budget(pruner.steps)
    assert audit.live_fraction == 1.0
    assert audit.outputs_reached == audit.outputs
    if not pruner.options.ignored:
        assert audit.kept == pruner.kept


def states(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """To the bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
