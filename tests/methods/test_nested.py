"""Nested networks: consistent ones of any size between two, each inside the next larger one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import combinations, pairwise

import pytest
from torch import Tensor

import trellis
from tests.oracle.brute import consistent, outputs_reached
from tests.oracle.network import Network, as_set
from tests.oracle.networks import KINDS, random_network
from trellis.errors import TrellisError
from trellis.graph.trellis import Trellis
from trellis.methods.budget import count
from trellis.methods.nested import between, chain, sizes

Kept = dict[str, Tensor]


def pruned_twice(network: Network) -> tuple[Trellis, Mapping[str, Tensor], Kept, Kept] | None:
    """Return a trellis, its weights, a network and a smaller one inside; None if it has none."""
    net = trellis.trace(copy.deepcopy(network.model), network.inputs)
    weights = {name: network.model.get_parameter(name).detach() for name in net.connections}
    live = trellis.audit(net).live
    try:
        larger = dict(trellis.prune(net, keep=live * 4 // 5))
        smaller = dict(trellis.prune(net, keep=max(live * 2 // 5, 1)))
    except TrellisError:  # too small to reach every output
        return None
    return net, weights, larger, smaller


@pytest.mark.parametrize("kind", KINDS)
def test_networks_of_all_sizes_are_nested_and_consistent(kind: str) -> None:
    done = 0
    for seed in range(20):
        network = random_network(seed, kind=kind)
        found = pruned_twice(network)
        if found is None:
            continue
        net, weights, larger, smaller = found
        for budget in range(count(smaller), count(larger) + 1):
            middle = between(net, weights, larger, smaller, budget)
            assert as_set(smaller) <= as_set(middle) <= as_set(larger)
            assert consistent(network.graph, as_set(middle))
            assert outputs_reached(network.graph, as_set(smaller)) <= outputs_reached(
                network.graph, as_set(middle)
            )
            assert count(middle) <= budget
        done += 1
        if done == 3:
            return
    assert done


@pytest.mark.parametrize("kind", ["mlp", "gcn", "residual"])
def test_a_budget_is_exact_if_any_nested_network_has_it(kind: str) -> None:
    tried = 0
    for seed in range(80):
        network = random_network(seed, kind=kind, largest=40)
        found = pruned_twice(network)
        if found is None:
            continue
        net, weights, larger, smaller = found
        free = sorted(as_set(larger) - as_set(smaller))
        if not 2 <= len(free) <= 10:
            continue
        for more in range(1, len(free)):
            exists = any(
                consistent(network.graph, as_set(smaller) | set(chosen))
                for chosen in combinations(free, more)
            )
            if exists:
                budget = count(smaller) + more
                assert count(between(net, weights, larger, smaller, budget)) == budget
                tried += 1
    assert tried > 5


def test_a_chain_goes_through_all_networks_asked_for() -> None:
    network = random_network(3, kind="convolutional")
    found = pruned_twice(network)
    assert found is not None
    net, weights, larger, smaller = found
    made = chain(net, weights, [larger, smaller])
    assert as_set(made[0]) == as_set(larger)
    assert as_set(made[-1]) == as_set(smaller)
    assert len(made) > 2
    assert {count(each) for each in made} <= set(sizes([count(larger), count(smaller)]))
    for one, other in pairwise(made):
        assert as_set(other) < as_set(one)
        assert consistent(network.graph, as_set(other))
