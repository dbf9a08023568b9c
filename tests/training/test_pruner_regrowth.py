"""Connections that come back: as many as planned, by gradient, from zero, and all live."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trellis
from trellis import Masks, Pruner, Schedule
from trellis.training.pruner import Renewal
from trellis.training.regrowth import ProbedMask, returning
from trellis.training.schedule import Plan

from .gradual import adam, batch, example, gradual, guaranteed, learn, network, sgd

CONSTANT = Schedule("linear", end=12, every=3, initial_sparsity=0.8)


def constant(model: nn.Module, regrow: float = 0.3, **options: Any) -> Pruner:
    return Pruner(model, example(), sparsity=0.8, schedule=CONSTANT, regrow=regrow, **options)


@pytest.mark.parametrize("method", ["viterbi", "magnitude", "synflow", "chains"])
@pytest.mark.parametrize("optimizer", [sgd, adam])
def test_what_is_regrown_is_new_live_and_zero(method: str, optimizer: Any) -> None:
    model = network()
    pruner = constant(model, method=method)
    before = pruner.masks
    guaranteed(pruner)
    regrown = []

    def watch(renewal: Renewal) -> None:
        nonlocal before
        guaranteed(pruner)
        now = pruner.masks
        fresh = {name: mask & ~before[name] for name, mask in now.items()}
        assert sum(int(mask.sum()) for mask in fresh.values()) == renewal.regrown
        assert renewal.regrown <= pruner.plan.regrown(renewal.step)
        for name, mask in fresh.items():
            layer = model[int(name[0])]
            assert isinstance(layer, nn.Linear) and bool((layer.weight[mask] == 0).all())
        regrown.append(renewal.regrown)
        before = now

    learn(model, optimizer(model), pruner, range(12), watch)
    planned = [pruner.plan.regrown(step) for step in (3, 6, 9, 12)]
    assert planned == [38, 22, 6, 0]
    assert regrown[-1] == 0 and sum(regrown) > 0.5 * sum(planned)


def test_those_of_largest_gradient_come_back() -> None:
    model = network()
    pruner = constant(model)
    optimizer = sgd(model)
    learn(model, optimizer, pruner, range(2))
    kept = pruner.masks
    x, y = batch(2)
    whole = network()  # the same function, all weights with a gradient of their own
    whole.load_state_dict(kept.plain_state_dict(model))
    F.cross_entropy(whole(x), y).backward()
    gradients = {name: whole.get_parameter(name).grad for name in kept}
    learn(model, optimizer, pruner, range(2, 3))
    found = {name: mask & ~kept[name] for name, mask in pruner.masks.items()}
    wanted = returning(
        pruner.net, kept, {n: g for n, g in gradients.items() if g is not None},
        pruner.plan.regrown(3), consistent=True,
    )  # fmt: skip
    assert sum(int(mask.sum()) for mask in found.values()) > 20
    assert not any(bool((mask & ~wanted[name]).any()) for name, mask in found.items())


def test_returning_is_top_gradient_that_can_live() -> None:
    """Worked out by hand: 2 -> 2 -> 1; the second hidden unit leads nowhere."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    net = trellis.trace(model, torch.zeros(1, 2))
    kept = {
        "0.weight": torch.tensor([[True, False], [False, False]]),
        "1.weight": torch.tensor([[True, False]]),
    }
    gradients = {
        "0.weight": torch.tensor([[9.0, 1.0], [8.0, -7.0]]),
        "1.weight": torch.tensor([[1.0, torch.nan]]),
    }
    found = returning(net, kept, gradients, 5, consistent=True)
    assert Masks(found) == Masks(
        {"0.weight": torch.tensor([[0, 1], [0, 0]]).bool(), "1.weight": torch.zeros(1, 2).bool()}
    )
    free = returning(net, kept, gradients, 2, consistent=False)
    assert free["0.weight"].tolist() == [[False, False], [True, True]]


def test_probing_changes_neither_outputs_nor_gradients() -> None:
    models = network(), network()
    pruners = gradual(models[0], regrow=0.3), gradual(models[1])
    for model, pruner in zip(models, pruners, strict=True):
        learn(model, sgd(model), pruner, range(1))
        x, y = batch(1)
        F.cross_entropy(model(x), y).backward()
    assert any(isinstance(m, ProbedMask) and m.probe is not None for m in models[0].modules())
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert a.grad is not None and b.grad is not None
        assert torch.equal(a.grad, b.grad)
    assert torch.equal(models[0](x), models[1](x))
    assert list(models[0].state_dict()) == list(models[1].state_dict())


def test_probes_are_open_only_before_a_renewal_that_regrows() -> None:
    model = network()
    pruner = constant(model)
    optimizer = sgd(model)
    opened = []
    for step in range(14):
        masks = [m for m in model.modules() if isinstance(m, ProbedMask)]
        assert len({m.probe is None for m in masks}) == 1
        opened.append(masks[0].probe is not None)
        learn(model, optimizer, pruner, range(step, step + 1))
    assert [step for step, open_ in enumerate(opened, 1) if open_] == [3, 6, 9]


def test_frozen_weights_do_not_regrow() -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    pruner = constant(model)
    before = pruner.masks
    learn(model, sgd(model), pruner, range(3))
    now = pruner.masks
    assert not bool((now["0.weight"] & ~before["0.weight"]).any())
    assert sum(int((now[name] & ~before[name]).sum()) for name in now) > 0


def test_a_step_without_gradients_brings_nothing_back() -> None:
    pruner = constant(network())
    for _ in range(3):
        renewal = pruner.step()
    assert renewal is not None and renewal.regrown == 0
    guaranteed(pruner)


def test_the_share_falls_along_a_cosine() -> None:
    plan = Plan.of(1000, 0.5, None, Schedule("linear", end=4, initial_sparsity=0.5), 0.4)
    assert [plan.regrown(step) for step in range(6)] == [200, 170, 100, 29, 0, 0]
