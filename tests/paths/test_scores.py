"""Scores are what every path, tried one by one, says they are."""

from collections.abc import Mapping
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.oracle.brute import closure, consistent
from tests.oracle.network import Network, as_set
from tests.oracle.networks import KINDS, networks, random_network
from tests.oracle.paths import viterbi
from tests.oracle.scalar import Connection
from tests.zoo import ZOO
from trellis import Trellis, trace
from trellis.methods.budget import Ranking
from trellis.paths import kernels, scores
from trellis.paths.algebra import MaxTimes
from trellis.paths.liveness import dense, liveness
from trellis.paths.scores import best_path, path_sum

from .traced import shapes, traced

SEEDS = st.integers(0, 1000)


def saliency(seed: int, like: dict[str, Tensor], levels: int | None = None) -> dict[str, Tensor]:
    """Random in (0, 1]; with `levels`, so many different values only."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {name: 1 - torch.rand(t.shape, generator=generator) for name, t in like.items()}
    return drawn if levels is None else {n: (t * levels).ceil() / levels for n, t in drawn.items()}


def as_numbers(tensors: Mapping[str, Tensor]) -> dict[Connection, float]:
    return {(n, i): v for n, t in tensors.items() for i, v in enumerate(t.reshape(-1).tolist())}


def check_best_path(network: Network, seed: int) -> None:
    """One factor apart, and nothing where no path goes."""
    net = trace(network.model, network.inputs)
    worth = saliency(seed, network.weights())
    expected = viterbi(network.graph, as_numbers(worth))
    for exact in (True, False):
        found = as_numbers(best_path(net, worth, exact=exact))
        assert {c for c, score in found.items() if score > 0} == set(expected)
        if expected:
            top = max(expected, key=lambda c: expected[c])
            factor = found[top] / expected[top]
            for c, score in expected.items():
                assert found[c] == pytest.approx(factor * score, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_path_is_the_best_of_all_paths(kind: str) -> None:
    for seed in range(12):
        check_best_path(random_network(seed, kind, largest=40), seed)


@given(networks(largest=40), SEEDS)
@settings(max_examples=40)
def test_the_best_path_is_the_best_of_all_paths_of_any_network(network: Network, seed: int) -> None:
    check_best_path(network, seed)


@pytest.mark.parametrize(
    "name", ["mlp", "lenet", "resnet18", "gpt2", "gcn", "gcn_stacked", "unet", "lstm_stacked",
             "tied_embedding", "transposed_convolution", "densenet_block", "vit", "swiglu"],
)  # fmt: skip
def test_working_in_pieces_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, _ = traced(name)
    worth = saliency(1, shapes(net))
    whole = dict(best_path(net, worth))
    monkeypatch.setattr(kernels, "CHUNK", 32)
    pieces = best_path(net, worth)
    assert all(torch.equal(whole[n], pieces[n]) for n in whole)


@pytest.mark.parametrize(
    "name", ["mlp", "lenet", "resnet18", "gpt2", "gcn", "mobilenet", "lstm_stacked", "vit",
             "tied_embedding", "tied_autoencoder", "multihead_attention", "gat_conv"],
)  # fmt: skip
def test_the_best_alone_are_those_of_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, _ = traced(name)
    worth = saliency(5, shapes(net))
    whole = best_path(net, worth)
    dense_scores = {n: whole[n].reshape(-1) for n in whole}
    ordered = torch.cat(list(dense_scores.values())).sort().values
    for size in (kernels.CHUNK, 32):
        monkeypatch.setattr(kernels, "CHUNK", size)
        for share in (0.0, 0.5, 0.9, 0.99, 1.0):
            floor = float(ordered[int(share * (len(ordered) - 1))])
            few = best_path(net, worth)  # which has worked out no tensor yet
            for n, score in dense_scores.items():
                places, values = few.at_least(n, floor)
                assert torch.equal(places, torch.nonzero(score >= floor)[:, 0])
                assert torch.equal(values, score[places])
                torch.testing.assert_close(few.sample(n, 3), score[::3], rtol=1e-6, atol=0)
                assert float(score.max()) <= few.tops[n]


@pytest.mark.parametrize("name", ["resnet18", "gpt2", "gcn", "gat_conv"])
@pytest.mark.parametrize("many", [1, 20, 100])
def test_samples_hold_the_best_of_all_that_could_be_drawn(name: str, many: int) -> None:
    net, _ = traced(name)
    found = best_path(net, saliency(6, shapes(net)))
    every = torch.cat([found.sample(n, 5) for n in found]).sort(descending=True).values
    some = torch.cat(found.samples(5, many)).sort(descending=True).values
    assert torch.equal(some[:many], every[:many])


@pytest.mark.parametrize("name", ["lenet", "resnet18", "unet", "mobilenet", "stgcn", "vit"])
def test_coarse_scores_are_upper_bounds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, _ = traced(name)
    worth = saliency(2, shapes(net))
    exact = dict(best_path(net, worth, exact=True))
    monkeypatch.setattr(scores, "MaxTimes", partial(MaxTimes, limit=1))
    coarse = best_path(net, worth)
    assert any(bool((coarse[n] > exact[n]).any()) for n in exact)
    assert all(bool((coarse[n] * (1 + 1e-5) >= exact[n]).all()) for n in exact)


def test_deep_products_neither_vanish_nor_explode() -> None:
    for scale in (1e-6, 1e6):
        model = nn.Sequential(*(nn.Linear(3, 3, bias=False) for _ in range(60)))
        net = trace(model, torch.zeros(1, 3))
        worth = {n: scale * t for n, t in saliency(3, shapes(net)).items()}
        best = torch.stack([s.max() for s in best_path(net, worth).values()])
        assert bool(torch.isfinite(best).all()) and bool((best > 0).all())
        # every layer is on the best path of all, up to the rounding of 60 products
        assert float(best.max() / best.min()) < 1 + 1e-4


def positive(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand_like(parameter) + 0.1)
    return model.double().eval()


def linear_models() -> dict[str, tuple[nn.Module, Tensor]]:
    """Linear in the input, weights and input positive: all paths add up to the output."""
    shared = nn.Linear(3, 3, bias=False)
    return {
        "dense": (nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False)),
                  torch.ones(1, 3)),
        "shared": (nn.Sequential(shared, shared, shared), torch.ones(1, 3)),
        "convolution": (nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, bias=False), nn.Flatten(),
                                      nn.Linear(32, 3, bias=False)), torch.ones(1, 1, 4, 4)),
        "transposed": (nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, bias=False),
                       torch.ones(1, 2, 3, 3)),
        "gcn": (ZOO["gcn"]()[0], torch.ones(1, 4, 3)),
        "gcn_stacked": (ZOO["gcn_stacked"]()[0], torch.ones(1, 4, 3)),
    }  # fmt: skip


@pytest.mark.parametrize("name", linear_models())
def test_the_path_sum_is_weight_times_slope(name: str) -> None:
    """|w| d(sum of outputs) / d|w| at an input of ones, one factor for the whole network."""
    model, x = linear_models()[name]
    positive(model)
    net = trace(model, x)
    worth = {n: model.get_parameter(n).detach().float() for n in net.connections}
    with torch.no_grad():  # differentiate at the float32 values that are scored
        for n, w in worth.items():
            model.get_parameter(n).copy_(w)
    model(x.double()).sum().backward()
    slopes = {n: p.detach() * p.grad for n, p in model.named_parameters() if p.grad is not None}
    top = max(float(s.max()) for s in slopes.values())
    found = path_sum(net, worth)
    for n in net.connections:
        torch.testing.assert_close(found[n].double(), slopes[n] / top, rtol=1e-6, atol=1e-12)


def check_thresholds(net: Trellis, network: Network, worth: dict[str, Tensor]) -> None:
    """The live part of {s >= t} is {closure >= t}, is consistent, and grows with the budget."""
    closed = closure(network.graph, as_numbers(worth))
    ranking = Ranking(worth, worth)
    for threshold in sorted(set(as_numbers(worth).values()))[::-1]:
        wanted = {c for c, s in closed.items() if s >= threshold}
        m = sum(int((s >= threshold).sum()) for s in worth.values())
        found = as_set(liveness(net, ranking.top(m)).live)
        assert found == wanted
        assert consistent(network.graph, found)


@given(networks(largest=30), SEEDS, st.sampled_from([None, 3]))
@settings(max_examples=30)
def test_what_lives_of_the_best_is_the_closure(
    network: Network, seed: int, levels: int | None
) -> None:
    net = trace(network.model, network.inputs)
    check_thresholds(net, network, saliency(seed, network.weights(), levels))


@given(networks(("mlp", "residual", "concatenating", "gcn"), largest=30), SEEDS)
@settings(max_examples=30)
def test_threshold_sets_of_the_best_path_are_consistent(network: Network, seed: int) -> None:
    """The theorem, on weights that are powers of two, which products do not round."""
    net = trace(network.model, network.inputs)
    generator = torch.Generator().manual_seed(seed)
    worth = {
        n: torch.exp2(-torch.randint(0, 4, w.shape, generator=generator).float())
        for n, w in network.weights().items()
    }
    found = best_path(net, worth, exact=True)
    for threshold in set(as_numbers(found).values()) - {0.0}:
        kept = {n: s >= threshold for n, s in found.items()}
        assert as_set(liveness(net, kept).live) == as_set(kept)
        assert consistent(network.graph, as_set(kept))


@pytest.mark.parametrize("name", ["lenet", "resnet18", "gpt2", "lstm", "gat_conv", "swiglu"])
def test_what_scores_something_can_live(name: str) -> None:
    net, _ = traced(name)
    alive = dense(net)
    for n, score in best_path(net, saliency(4, shapes(net)), exact=True).items():
        assert bool((alive[n] <= (score > 0)).all())
