"""The definitions agree with each other and with answers worked out by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from .brute import closure, consistent, feasible_budgets, live, outputs_reached
from .network import Network, as_masks, as_set, random_mask
from .networks import KINDS, WITHOUT_GATES, networks, random_network
from .paths import live_by_paths, paths, viterbi, weakest_link
from .scalar import Connection, ScalarGraph

SEEDS = st.integers(0, 1000)


def chains(count: int, length: int) -> ScalarGraph:
    """Parallel chains of connections, each to an output of its own."""
    graph = ScalarGraph()
    for chain in range(count):
        unit = graph.input()
        for step in range(length):
            unit = graph.sum([(unit, ("w", chain * length + step))])
        graph.outputs.append(unit)
    return graph


def w(*indices: int) -> set[Connection]:
    return {("w", index) for index in indices}


def test_a_broken_chain_is_dead() -> None:
    graph = chains(2, 3)
    assert live(graph, w(0, 1, 2, 3, 5)) == w(0, 1, 2)
    assert outputs_reached(graph, w(0, 1, 2, 3, 5)) == {graph.outputs[0]}


def test_two_chains_of_three_allow_three_or_six() -> None:
    assert feasible_budgets(chains(2, 3)) == {3, 6}
    assert feasible_budgets(chains(2, 3), cover_outputs=True) == {6}


def test_a_bias_starts_no_path() -> None:
    graph = ScalarGraph()
    hidden = graph.sum([(graph.input(), ("w", 0)), (graph.constant(), None)])
    graph.outputs = [graph.sum([(hidden, ("w", 1))])]
    assert live(graph, w(1)) == set()


def test_a_gate_needs_both_sides() -> None:
    graph = ScalarGraph()
    x = graph.input()
    left, right = graph.sum([(x, ("w", 0))]), graph.sum([(x, ("w", 1))])
    graph.outputs = [graph.product(left, right)]
    assert live(graph, w(0)) == set()
    assert live(graph, w(0, 1)) == w(0, 1)


def test_behind_a_sigmoid_a_gate_is_never_shut() -> None:
    graph = ScalarGraph()
    x = graph.input()
    gate = graph.function(graph.sum([(x, ("w", 1))]), zero_at_zero=False)
    graph.outputs = [graph.product(graph.sum([(x, ("w", 0))]), gate)]
    assert live(graph, w(0)) == w(0)
    assert live(graph, w(1)) == set()  # what it scales is zero


def test_a_constant_gate_is_live() -> None:
    for zero_at_zero in (True, False):
        graph = ScalarGraph()
        gate = graph.function(graph.sum([(graph.constant(), ("w", 1))]), zero_at_zero)
        graph.outputs = [graph.product(graph.sum([(graph.input(), ("w", 0))]), gate)]
        assert live(graph, w(0, 1)) == w(0, 1)
        assert live(graph, w(0)) == (set() if zero_at_zero else w(0))


def test_a_state_of_zeros_is_not_a_bias() -> None:
    graph = ScalarGraph()
    state = graph.sum([(graph.constant(nonzero=False), ("w", 0))])
    graph.outputs = [graph.product(graph.input(), state)]
    assert live(graph, w(0)) == set()


def test_viterbi_and_closure_by_hand() -> None:
    graph = ScalarGraph()
    x = graph.input()
    a, b = graph.sum([(x, ("w", 0))]), graph.sum([(x, ("w", 1))])
    graph.outputs = [graph.sum([(a, ("w", 2)), (b, ("w", 3)), (x, ("w", 4))])]
    weights = {("w", i): v for i, v in enumerate((2.0, -3.0, 5.0, 1.0, -4.0))}
    best = {("w", 0): 10.0, ("w", 1): 3.0, ("w", 2): 10.0, ("w", 3): 3.0, ("w", 4): 4.0}
    assert viterbi(graph, weights) == best
    magnitude = {c: abs(v) for c, v in weights.items()}
    closed = {("w", 0): 2.0, ("w", 1): 1.0, ("w", 2): 2.0, ("w", 3): 1.0, ("w", 4): 4.0}
    assert closure(graph, magnitude) == closed == weakest_link(graph, magnitude)


@given(networks(WITHOUT_GATES), SEEDS)
@settings(deadline=None, max_examples=60)
def test_bits_equal_paths(network: Network, seed: int) -> None:
    kept = as_set(random_mask(seed, network.weights()))
    assert live(network.graph, kept) == live_by_paths(network.graph, kept)


@given(networks(WITHOUT_GATES), SEEDS)
@settings(deadline=None, max_examples=30)
def test_closure_is_the_weakest_link_of_the_best_path(network: Network, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    saliency = {
        c: float(torch.rand((), generator=generator)) for c in sorted(network.graph.connections())
    }
    assert closure(network.graph, saliency) == weakest_link(network.graph, saliency)


@given(networks(), SEEDS)
@settings(deadline=None, max_examples=60)
def test_the_live_part_is_consistent(network: Network, seed: int) -> None:
    kept = as_set(random_mask(seed, network.weights()))
    alive = live(network.graph, kept)
    assert alive <= kept
    assert consistent(network.graph, alive)
    assert outputs_reached(network.graph, alive) == outputs_reached(network.graph, kept)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_and_sets_are_the_same_thing(kind: str) -> None:
    network = random_network(1, kind)
    masks = random_mask(2, network.weights(), density=0.5)
    back = as_masks(as_set(masks), network.weights())
    assert all(torch.equal(masks[name], back[name]) for name in masks)


@given(networks(("mlp", "gcn"), largest=9))
@settings(deadline=None, max_examples=20)
def test_the_dense_network_is_feasible(network: Network) -> None:
    everything = network.graph.connections()
    assert consistent(network.graph, everything)
    for cover in (False, True):
        assert max(feasible_budgets(network.graph, cover)) == len(everything)


def test_every_path_of_a_dense_network() -> None:
    """Widths multiply: the number of paths of an MLP is the product of its widths."""
    for seed in range(20):
        network = random_network(seed, "mlp")
        linears = [m for m in network.model.modules() if isinstance(m, torch.nn.Linear)]
        expected = linears[0].in_features
        for layer in linears:
            expected *= layer.out_features
        assert sum(1 for _ in paths(network.graph)) == expected
