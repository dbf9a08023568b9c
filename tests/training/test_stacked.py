"""A stack computes what its networks compute."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.training.networks import CHANNELS, NODES, OPTIONS, gcn
from trellis.errors import TrellisError
from trellis.training import forward_of, stack, unstack


@pytest.mark.parametrize("name", OPTIONS)
def test_stacked_is_mapped_is_one_by_one(name: str) -> None:
    """GCN.stacked, the generic map over parameters, and the modules themselves."""
    models = [gcn(seed, **OPTIONS[name]) for seed in range(4)]
    x = torch.randn(4, 9, NODES, CHANNELS, dtype=torch.float64)
    weights = stack(models)
    apart = torch.stack([model(part) for model, part in zip(models, x, strict=True)])
    own = forward_of(models[0])(weights, x)

    class Unaware(nn.Module):
        """The same network, which does not know how to run a stack."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = models[0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.inner(x)
            return y

    mapped = forward_of(Unaware())({f"inner.{n}": w for n, w in weights.items()}, x)
    torch.testing.assert_close(own, apart, rtol=0, atol=1e-12)
    torch.testing.assert_close(mapped, apart, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", OPTIONS)
def test_gradients_of_a_stack_are_those_of_its_networks(name: str) -> None:
    models = [gcn(seed, **OPTIONS[name]) for seed in range(3)]
    x = torch.randn(3, 9, NODES, CHANNELS, dtype=torch.float64)
    weights = {n: w.requires_grad_() for n, w in stack(models).items()}
    forward_of(models[0])(weights, x).pow(3).sum().backward()
    for i, model in enumerate(models):
        model(x[i]).pow(3).sum().backward()
        for n, parameter in model.named_parameters():
            grad = weights[n].grad
            assert grad is not None
            torch.testing.assert_close(grad[i], parameter.grad, rtol=1e-9, atol=1e-9)


def test_unstack_is_the_inverse() -> None:
    models = [gcn(seed) for seed in range(3)]
    weights = stack(models)
    others = [gcn(seed + 10) for seed in range(3)]
    unstack(weights, others)
    for one, other in zip(models, others, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters()))  # noqa: B905


def test_what_cannot_be_stacked() -> None:
    with pytest.raises(TrellisError, match="at least one network"):
        stack([])
    with pytest.raises(TrellisError, match="expected networks of one architecture"):
        stack([gcn(0), gcn(0, heads=2)])


def test_other_models_run_in_evaluation_mode() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    inputs = torch.randn(2, 5, 3)
    found = forward_of(model)(stack([model, model]), inputs)
    assert model.training
    assert torch.allclose(found, model.eval()(inputs), atol=1e-6)
