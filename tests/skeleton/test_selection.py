"""Pruning a stack at once is pruning each of its networks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import trellis
from tests.training.networks import CHANNELS, NODES, gcn
from trellis.skeleton import GCN
from trellis.skeleton.model.gcn_stacks import BY_LAYER, PATHS, StackSelector, selector
from trellis.training import stack
from trellis.training.stack_pruning import SingleSelector

X = torch.zeros(1, NODES, CHANNELS)
OPTIONS: list[dict[str, Any]] = [
    {}, {"shared": True}, {"combine": "sum"}, {"combine": "sum", "shared": True}, {"bias": True},
]  # fmt: skip
BUDGETS = (12, 13, 17, 25, 60, 150, 250)


def models(count: int, **options: Any) -> list[GCN]:
    return [gcn(seed, **options).float() for seed in range(count)]


def worth(networks: list[GCN]) -> dict[str, Tensor]:
    return {n: w.abs() for n, w in stack(networks).items() if not n.endswith("bias")}


def whole(stacked: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.ones_like(value, dtype=torch.bool) for name, value in stacked.items()}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("budget", BUDGETS)
def test_the_same_masks_as_prune_gives_each(options: dict[str, Any], budget: int) -> None:
    networks = models(3, **options)
    values = worth(networks)
    found = StackSelector(networks[0])(values, whole(values), [budget] * 3)
    for i, model in enumerate(networks):
        expected = trellis.prune(copy.deepcopy(model), X, keep=budget, method="viterbi")
        for name, mask in expected.items():
            assert torch.equal(found[name][i], mask), (name, i)


@pytest.mark.parametrize("budget", (5, 33, 150))
def test_by_layer_is_the_papers_pruning(budget: int) -> None:
    networks = models(2)
    values = worth(networks)
    found = selector(networks[0], BY_LAYER)(values, whole(values), [budget] * 2)
    for i, model in enumerate(networks):
        expected = trellis.prune(
            copy.deepcopy(model), X, keep=budget, method="magnitude", scope="layer"
        )
        for name, mask in expected.items():
            assert torch.equal(found[name][i], mask), (name, i)


@settings(max_examples=25)
@given(
    st.sampled_from(OPTIONS),
    st.sampled_from(sorted(PATHS)),
    st.integers(0, 10_000),
    st.lists(st.integers(12, 140), min_size=2, max_size=2),
)
def test_whatever_is_left_every_network_meets_its_budget_and_lives(
    options: dict[str, Any], method: str, seed: int, budgets: list[int]
) -> None:
    networks = models(2, **options)
    values = worth(networks)
    generator = torch.Generator().manual_seed(seed)
    values = {  # few different numbers, so that many tie
        name: torch.randint(1, 4, value.shape, generator=generator).float()
        for name, value in values.items()
    }
    choose = StackSelector(networks[0], method)
    first = choose(values, whole(values), [141, 160])
    second = choose(values, first, budgets)
    for i, model in enumerate(networks):
        kept = {name: mask[i] for name, mask in second.items()}
        assert sum(int(mask.sum()) for mask in kept.values()) == budgets[i]
        assert all((first[name][i] | ~mask).all() for name, mask in kept.items())
        pruned = copy.deepcopy(model)
        trellis.Masks(kept).apply(pruned)
        audit = trellis.audit(pruned, X)
        assert (audit.live, audit.outputs_reached) == (budgets[i], audit.outputs)


def test_networks_that_it_is_not_for_go_one_by_one() -> None:
    assert isinstance(selector(gcn(0, blocks=2)), SingleSelector)
    assert isinstance(selector(gcn(0)), StackSelector)
    with pytest.raises(trellis.TrellisError, match=r"expected a method .* got 'best'"):
        selector(gcn(0), "best")
