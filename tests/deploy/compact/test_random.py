"""Random small networks under random masks: compacted, they compute what they computed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import trellis
from tests.deploy.compact.agreement import apart, doubled, drawn, outputs
from tests.oracle.network import Network, random_mask
from tests.oracle.networks import KINDS, networks, random_network

SEEDS = st.integers(0, 1000)


def same_function(network: Network, seed: int) -> trellis.Compacted:
    masks = random_mask(seed, network.weights())
    model, inputs = doubled(network.model, network.inputs)
    trellis.Masks(masks).apply(model)
    small = trellis.compact(model, inputs)
    fresh = drawn(inputs, 3, seed)
    assert apart(outputs(model, fresh), outputs(small, fresh)) < 1e-9
    audit = trellis.audit(small, inputs)
    assert audit.kept == audit.live
    return small


@given(networks(), SEEDS)
@settings(deadline=None, max_examples=25)
def test_the_same_function(network: Network, seed: int) -> None:
    same_function(network, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind: str) -> None:
    for seed in range(3):
        same_function(random_network(seed, kind), seed)


@given(networks(("mlp",)), SEEDS)
@settings(deadline=None, max_examples=15)
def test_of_an_mlp_exactly_the_live_units_are_left(network: Network, seed: int) -> None:
    masks = random_mask(seed, network.weights())
    trellis.Masks(masks).apply(network.model)
    audit = trellis.audit(network.model, network.inputs)
    small = trellis.compact(network.model, network.inputs)
    assert small.report.after.kept == audit.live
    layers = [m for m in network.model if isinstance(m, nn.Linear)]  # type: ignore[attr-defined]
    alive = list(audit.live_masks.values())
    if not alive[-1].any():  # nothing arrives: a constant is all there is
        assert small.report.after.connections == 0
        return
    widths = [int(own.any(1).sum()) for own in alive[:-1]] + [layers[-1].out_features]
    assert small.report.after.units == sum(widths)


def test_weights_that_are_zero_are_as_good_as_masked() -> None:
    first, last = nn.Linear(6, 8), nn.Linear(8, 3)
    with torch.no_grad():
        first.weight[:4] = 0
        last.weight[:, 6:] = 0
    model = nn.Sequential(first, nn.ReLU(), last).double()
    x = torch.randn(5, 6, dtype=torch.float64)
    small = trellis.compact(model, x[:1])
    assert small.report.after.units == 2 + 3
    assert apart([model(x).detach()], [small(x).detach()]) < 1e-12


class Nested(nn.Module):
    """Two inputs in a list, a dictionary of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, pair: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        y = torch.relu(self.first(pair[0] + pair[1]))
        return {"sum": self.last(y), "hidden": y[:, :2]}


def test_nested_inputs_and_outputs() -> None:
    model = Nested().double()
    with torch.no_grad():
        model.first.weight[3:] = 0
    pair = [torch.randn(1, 4, dtype=torch.float64) for _ in range(2)]
    small = trellis.compact(model, (pair,))
    expected, found = model(pair), small(pair)
    assert list(found) == ["sum", "hidden"]
    for name in found:
        assert torch.allclose(found[name], expected[name], atol=1e-12)
    assert small.report.after.units < small.report.before.units
