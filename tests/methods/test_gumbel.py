"""Stochastic `viterbi`: Gumbel noise on the logarithms of magnitudes, by the laws that gives.

Paths are compared by sums of log |w| + G, a standard Gumbel variable for each connection. Along one
connection each that makes the best of several the one drawn in proportion to magnitude; along two,
the difference between two paths is the sum of two logistic variables, whose law is known as well.
Thousands of independent draws are taken at once, as the groups of one network. Seeds are fixed.
"""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from tests.zoo import ZOO
from trellis import Trellis, prune, trace
from trellis.methods.saliency import perturbed
from trellis.paths.scores import best_path

GROUPS = 20_000


def near(share: float, chance: float) -> bool:
    """Within four and a half standard deviations of so many draws."""
    return abs(share - chance) < 4.5 * math.sqrt(chance * (1 - chance) / GROUPS)


def grouped(*widths: int) -> Trellis:
    """So many networks beside each other, each from one unit to one: widths of what is between."""
    sizes = (1, *widths, 1)
    layers = [
        nn.Conv1d(a * GROUPS, b * GROUPS, 1, groups=GROUPS, bias=False) for a, b in pairwise(sizes)
    ]
    return trace(nn.Sequential(*layers), torch.zeros(1, GROUPS, 1))


def noisy(net: Trellis, *magnitudes: list[float]) -> list[Tensor]:
    """Scores (groups, connections) of each layer, all groups having the same magnitudes."""
    sizes = zip(net.connections.items(), magnitudes, strict=True)
    plain = {name: torch.tensor(m).repeat(GROUPS).reshape(shape) for (name, shape), m in sizes}
    scores = best_path(net.lean, perturbed(plain, seed=11))
    return [scores[name].reshape(GROUPS, -1) for name in net.connections]


def test_the_best_connection_is_drawn_in_proportion_to_magnitude() -> None:
    magnitudes = [1.0, 2.0, 3.0, 6.0]
    values = perturbed({"w": torch.tensor(magnitudes).repeat(GROUPS, 1)}, seed=3)["w"]
    first, second = values.topk(2).indices.T
    for i, m in enumerate(magnitudes):
        assert near(float((first == i).float().mean()), m / 12)
        for j, other in enumerate(magnitudes):  # and the next in proportion among the rest
            if i != j:
                both = float(((first == i) & (second == j)).float().mean())
                assert near(both, m / 12 * other / (12 - m))


@pytest.mark.parametrize("ratio", [0.2, 0.999, 3.0, 25.0])
def test_the_best_path_of_two_connections_follows_its_law(ratio: float) -> None:
    # P(path 1) = P(L + L' < log ratio) of two logistic variables.
    chance = ratio / (ratio - 1) - ratio * math.log(ratio) / (ratio - 1) ** 2
    scores = noisy(grouped(2), [math.sqrt(ratio), 1.0], [math.sqrt(ratio), 1.0])
    for layer in scores:
        assert near(float((layer[:, 0] > layer[:, 1]).float().mean()), chance)
    # Both connections of a path have its weight, up to the rounding of two products.
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["mlp", "lenet", "gcn"])
def test_pruning_keeps_the_best_under_that_noise(name: str) -> None:
    model, inputs = ZOO[name]()
    magnitude = {n: p.detach().abs() for n, p in model.named_parameters()}
    names = trace(model, inputs).connections
    noise = perturbed({n: magnitude[n] for n in names}, seed=5)
    chosen = prune(model, inputs, sparsity=0.8, stochastic=True, seed=5)
    again, _ = ZOO[name]()
    assert prune(again, inputs, sparsity=0.8, saliency=noise) == chosen
