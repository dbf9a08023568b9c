"""PHEW-like walks: what they find is live, to the exact budget, and they always end."""

import pytest
import torch

from tests.zoo import ZOO
from trellis import trace
from trellis.errors import TrellisError
from trellis.methods.layers import layered
from trellis.methods.phew import Wander, phew
from trellis.paths.liveness import liveness

from .literal import count, mlp, saliency_of


@pytest.mark.parametrize("name", ["mlp", "gcn", "gcn_stacked", "gcn_shared"])
def test_every_budget_is_met_exactly_and_all_of_it_is_live(name: str) -> None:
    model, inputs = ZOO[name]()
    net = trace(model, inputs)
    saliency = saliency_of(model, None, 1)
    depth = len(net.contractions)
    for budget in sorted({depth, depth + 1, *range(depth, net.total, net.total // 7), net.total}):
        masks = phew(net, saliency, budget)
        assert count(masks) == budget
        assert liveness(net, masks).count == budget


@pytest.mark.parametrize("name", ["lenet", "pooling", "upsampling", "tied_embedding", "wiring"])
def test_walks_of_convolutions_and_wires_are_live(name: str) -> None:
    model, inputs = ZOO[name]()
    net = trace(model, inputs)
    saliency = {n: torch.rand(shape) for n, shape in net.connections.items()}
    masks = phew(net, saliency, net.total // 4)
    assert 0 < count(masks) == liveness(net, masks).count <= net.total // 4


def test_a_few_connections_that_draw_all_walks_do_not_hold_them_up() -> None:
    net = trace(mlp([4, 6, 5]), torch.zeros(1, 4))
    saliency = {n: torch.full(shape, 1e-30) for n, shape in net.connections.items()}
    for values in saliency.values():
        values[0, 0] = 1.0
    saliency["0.weight"][0] = 1.0
    saliency["1.weight"][:, 0] = 1.0
    for budget in (11, 30, net.total):  # (4 + 5 around one hidden unit; another needs two more)
        masks = phew(net, saliency, budget)
        assert count(masks) == liveness(net, masks).count == budget


def test_nothing_to_prefer_still_walks() -> None:
    model, inputs = ZOO["gcn"]()
    net = trace(model, inputs)
    saliency = {n: torch.zeros(shape) for n, shape in net.connections.items()}
    masks = phew(net, saliency, 25)
    assert count(masks) == liveness(net, masks).count == 25


def test_the_same_seed_gives_the_same_masks_and_another_gives_others() -> None:
    model, inputs = ZOO["gcn"]()
    saliency = saliency_of(model, None, 0)
    one, same, other = (phew(trace(model, inputs), saliency, 30, seed=s) for s in (5, 5, 6))
    assert all(torch.equal(one[n], same[n]) for n in one)
    assert any(not torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("forward", [True, False])
def test_choices_are_in_proportion_to_magnitude_both_ways(forward: bool) -> None:
    """Three units between one input and one output; the way there and back is by one layer."""
    net = layered(trace(mlp([1, 3, 1]), torch.zeros(1, 1)))
    sizes = torch.tensor([0.1, 0.3, 0.6] * 2, dtype=torch.float64)
    wander = Wander(net, sizes.numpy(), bytearray(net.total), seed=1)
    draws = 4000
    first = torch.tensor([wander.walk(forward, 0)[0] % 3 for _ in range(draws)])
    shares = torch.bincount(first, minlength=3) / draws
    spread = (sizes[:3] * (1 - sizes[:3]) / draws).sqrt()
    assert ((shares - sizes[:3]).abs() < 4 * spread).all()


def test_a_branching_trellis_is_refused() -> None:
    model, inputs = ZOO["residual"]()
    net = trace(model, inputs)
    with pytest.raises(TrellisError, match=r"blocks\.0\.0\.weight.*viterbi"):
        phew(net, saliency_of(model, None, 0), 10)
