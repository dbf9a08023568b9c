"""Work that is to be done on another device is done there, and says the same."""

import pytest
import torch

from tests.oracle.networks import KINDS, random_network
from tests.paths.elsewhere import DEVICE, Elsewhere
from trellis import trace
from trellis.methods.synflow import synflow
from trellis.paths.liveness import Witness
from trellis.paths.scores import path_sum


@pytest.mark.parametrize("kind", KINDS)
def test_path_sums(kind: str) -> None:
    network = random_network(3, kind)
    net = trace(network.model, network.inputs)
    worth = {n: w.detach().abs() for n, w in network.weights().items()}
    here = path_sum(net, worth)
    with Elsewhere():
        there = path_sum(net, worth, DEVICE)
        assert {score.device for score in there.values()} == {DEVICE}
        assert all(torch.equal(score.cpu(), here[n]) for n, score in there.items())


@pytest.mark.parametrize("kind", KINDS)
def test_synflow(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model lies here and the work is done there; what comes back is here again."""
    monkeypatch.setattr("trellis.methods.synflow.ROUNDS", 4)
    network = random_network(3, kind)
    net = trace(network.model, network.inputs)
    worth = {n: w.detach().abs() for n, w in network.weights().items()}
    budget = max(net.total // 3, 1)
    here = synflow(net, worth, None, budget).top(budget)
    with Elsewhere():
        ranking = synflow(net, worth, None, budget, DEVICE)
    assert ranking.device == torch.device("cpu")
    assert all(torch.equal(mask, here[n]) for n, mask in ranking.top(budget).items())


@pytest.mark.parametrize("kind", KINDS)
def test_best_paths(kind: str) -> None:
    network = random_network(3, kind)
    net = trace(network.model, network.inputs)
    worth = {n: w.detach().abs() for n, w in network.weights().items()}
    here = Witness(net, worth)
    wanted = [value > 0 for value in here.outputs()]
    marked = here.to_outputs(wanted)
    with Elsewhere():
        there = Witness(net, worth, DEVICE)
        assert {value.device for value in there.outputs()} == {DEVICE}
        found = there.to_outputs([mask.to(DEVICE) for mask in wanted])
        assert all(torch.equal(mask.cpu(), marked[n]) for n, mask in found.items())
        for (_, one), (_, two) in zip(here.through(), there.through(), strict=True):
            assert two.device == DEVICE and torch.equal(two.cpu(), one)
