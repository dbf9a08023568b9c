"""Saliency from data equals its definition, measured on batches and gathered in training."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import trellis
from trellis.training.gradients import DECAY


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(5, 2, 4, 4, generator=generator),
            torch.randint(0, 3, (5,), generator=generator),
        )
        for _ in range(3)
    ]


def gradient(model: nn.Module, name: str, x: Tensor, y: Tensor) -> Tensor:
    return torch.autograd.grad(F.cross_entropy(model(x), y), model.get_parameter(name))[0]


@pytest.mark.parametrize("kind", ["taylor", "gradient-magnitude", "movement"])
def test_first_order_kinds_equal_their_definition(kind: str) -> None:
    model = network()
    before = copy.deepcopy(model.state_dict())
    found = trellis.saliency(model, batches(), kind)
    for name in ("0.weight", "3.weight"):
        w = model.get_parameter(name).detach()
        gradients = [gradient(model, name, x, y) for x, y in batches()]
        mean = torch.stack(gradients).abs().mean(0)
        by_hand = {
            "taylor": w.abs() * mean,
            "gradient-magnitude": w.abs() * mean.sqrt(),
            "movement": -sum(g * w for g in gradients),
        }[kind]
        torch.testing.assert_close(found[name], by_hand)
    assert model.training and all(p.grad is None for p in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_wanda_equals_its_definition() -> None:
    model = network()
    found = trellis.saliency(model, batches(), "wanda")
    x = torch.cat([x for x, _ in batches()])
    hidden = model[:3](x).detach()
    linear = model.get_parameter("3.weight").detach()
    torch.testing.assert_close(found["3.weight"], linear.abs() * hidden.square().mean(0).sqrt())
    kernel = model.get_parameter("0.weight").detach()  # (4, 1, 3, 3): two groups of two outputs
    rms = x.square().mean((0, 2, 3)).sqrt()
    for out in range(4):
        torch.testing.assert_close(found["0.weight"][out, 0], kernel[out, 0].abs() * rms[out // 2])


def slope(model: nn.Module) -> Tensor:
    found = model.get_parameter(WEIGHT).grad
    assert found is not None
    return found.clone()


def trained(model: nn.Module, pruner: trellis.Pruner, steps: range) -> list[Tensor]:
    seen = []
    for step in steps:
        x, y = batches()[step % 3]
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        seen.append(slope(model))
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is not None:
                    p.sub_(p.grad, alpha=0.05)
        pruner.step()
    return seen


WEIGHT = "3.parametrizations.weight.original"


def pruner_of(model: nn.Module, kind: str, **options: Any) -> trellis.Pruner:
    schedule = trellis.Schedule("one-shot", begin=4)
    x = batches()[0][0]
    return trellis.Pruner(model, x, keep=20, schedule=schedule, saliency=kind, **options)


def test_a_pruner_gathers_the_running_mean() -> None:
    model = network()
    pruner = pruner_of(model, "taylor", method="magnitude", consistent=False, ignore="0.*")
    gradients = trained(model, pruner, range(3))
    last = [g.clone() for g in gradients]
    x, y = batches()[0]
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    last.append(slope(model))
    mean = torch.zeros_like(last[0])
    for g in last:
        mean = DECAY * mean + (1 - DECAY) * g.abs()
    worth = (model.get_parameter(WEIGHT).detach().abs() * mean).reshape(-1)
    pruner.step()
    kept = pruner.masks["3.weight"].reshape(-1)
    assert pruner.kept == 20 and float(worth[kept].min()) >= float(worth[~kept].max())


@pytest.mark.parametrize("kind", ["taylor", "gradient-magnitude", "movement"])
def test_a_resumed_pruner_chooses_alike(kind: str) -> None:
    whole = network()
    pruner = pruner_of(whole, kind)
    trained(whole, pruner, range(4))
    first = network()
    begun = pruner_of(first, kind)
    trained(first, begun, range(2))
    second = network()
    resumed = pruner_of(second, kind)
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(begun.state_dict())
    trained(second, resumed, range(2, 4))
    assert resumed.masks == pruner.masks and resumed.kept == 20
    assert trellis.audit(pruner.net).dead == 0


def test_what_had_no_gradient_is_named() -> None:
    model = network()
    pruner = pruner_of(model, "taylor")
    for _ in range(3):
        pruner.step()
    trained_first = model.get_parameter(WEIGHT)
    trained_first.grad = None
    (trained_first.sum()).backward()
    with pytest.raises(trellis.TrellisError, match=r"'0\.weight' had none yet"):
        pruner.step()
