"""The fast walk against Algorithm 1 word by word; budgets, seeds, consistency."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.zoo import ZOO
from tests.zoo.graph import GCN, Form
from trellis import Trellis, trace
from trellis.errors import TrellisError
from trellis.methods.chains import Choices, Walk, ahead, chains, rotation
from trellis.methods.layers import layered
from trellis.paths.liveness import addable, liveness

from .literal import algorithm_1, count, mlp, saliency_of, unroll

VARIANTS: list[dict[str, Any]] = [
    {},
    {"stochastic": True},
    {"surrogate": "global"},
    {"surrogate": "global", "inverse_alpha": 10.0, "stochastic": True},
    {"surrogate": "global", "inverse_alpha": math.inf, "row_normalize": True},
]
widths = st.lists(st.integers(1, 4), min_size=3, max_size=5)
forms = st.sampled_from(["steps", "einsum", "shared"])


def dense(sizes: Sequence[int]) -> tuple[nn.Module, Trellis]:
    model = mlp(sizes)
    return model, trace(model, torch.zeros(1, sizes[0]))


def tiny_gcn(form: Form, blocks: int) -> tuple[nn.Module, Trellis]:
    model = GCN(2, 2, 2, 2, 2, form, blocks).eval()
    return model, trace(model, torch.zeros(1, 2, 2))


def check_against_the_definition(
    model: nn.Module, trellis: Trellis, seed: int, levels: int | None, stochastic: bool, glob: bool
) -> None:
    """At every budget, the walk takes what Algorithm 1 takes (singles aside)."""
    net = layered(trellis)
    magnitudes = net.flat(saliency_of(model, levels, seed), missing=1.0)
    scores = ahead(net, magnitudes, 2.5, total=stochastic) if glob else None
    order = rotation(net.units[0], seed)
    graph = unroll(net, Choices(net, magnitudes, ahead=scores, seed=seed if stochastic else None))
    for budget in range(1, net.total + 1, 1 + net.total // 12):
        taken = bytearray(net.total)
        choices = Choices(net, magnitudes, ahead=scores, seed=seed if stochastic else None)
        room = Walk(choices, taken).rounds(order, budget)
        found = {connection for connection, bit in enumerate(taken) if bit}
        assert found == algorithm_1(graph, len(net.layers), order, budget)
        assert room == budget - len(found)


@given(widths, st.integers(0, 999), st.sampled_from([None, 1, 3]), st.booleans(), st.booleans())
@settings(max_examples=40)
def test_walks_of_dense_networks_are_algorithm_1(
    sizes: list[int], seed: int, levels: int | None, stochastic: bool, glob: bool
) -> None:
    check_against_the_definition(*dense(sizes), seed, levels, stochastic, glob)


@given(forms, st.integers(1, 2), st.integers(0, 999), st.sampled_from([None, 1, 3]),
       st.booleans(), st.booleans())  # fmt: skip
@settings(max_examples=25)
def test_walks_of_the_gcn_are_algorithm_1(
    form: Form, blocks: int, seed: int, levels: int | None, stochastic: bool, glob: bool
) -> None:
    check_against_the_definition(*tiny_gcn(form, blocks), seed, levels, stochastic, glob)


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("name", ["mlp", "gcn", "gcn_stacked", "gcn_shared"])
def test_every_budget_is_met_exactly_and_all_of_it_is_live(
    name: str, options: dict[str, Any]
) -> None:
    model, inputs = ZOO[name]()
    net = trace(model, inputs)
    saliency = saliency_of(model, None, 1)
    depth = len(net.contractions)
    for budget in sorted({depth, depth + 1, *range(depth, net.total, net.total // 7), net.total}):
        masks = chains(net, saliency, budget, **options)
        assert count(masks) == budget
        assert liveness(net, masks).count == budget


@pytest.mark.parametrize("name", ["lenet", "pooling", "upsampling", "strided_convolution",
                                  "transposed_convolution", "tied_embedding", "shared_layer",
                                  "gcn_conv", "text_classifier"])  # fmt: skip
def test_elsewhere_less_is_kept_only_where_no_single_connection_can_be_added(name: str) -> None:
    model, inputs = ZOO[name]()
    net = trace(model, inputs)
    saliency = {n: torch.rand(shape) for n, shape in net.connections.items()}
    for budget in (1, 9, net.total // 20, net.total // 3, net.total):
        masks = chains(net, saliency, budget, surrogate="global")
        kept = count(masks)
        assert liveness(net, masks).count == kept <= budget
        free = addable(net, masks)
        assert kept in (0, budget) or not any((free[n] & ~masks[n]).any() for n in masks)


def test_nothing_to_prefer_still_walks() -> None:
    model, inputs = ZOO["gcn"]()
    net = trace(model, inputs)
    saliency = {n: torch.zeros(shape) for n, shape in net.connections.items()}
    for options in VARIANTS:
        masks = chains(net, saliency, 20, **options)
        assert count(masks) == liveness(net, masks).count == 20


@pytest.mark.parametrize("options", VARIANTS)
def test_the_same_seed_gives_the_same_masks_and_another_gives_others(
    options: dict[str, Any],
) -> None:
    model, inputs = ZOO["gcn"]()
    saliency = saliency_of(model, None, 0)
    one, same, other = (
        chains(trace(model, inputs), saliency, 30, seed=seed, **options) for seed in (5, 5, 6)
    )
    assert all(torch.equal(one[n], same[n]) for n in one)
    assert any(not torch.equal(one[n], other[n]) for n in one)


def test_a_chain_takes_the_largest_connection_of_each_unit() -> None:
    _, net = dense([1, 3, 2])
    saliency = {"0.weight": torch.tensor([[1.0], [3.0], [2.0]]),
                "1.weight": torch.tensor([[9.0, 1.0, 9.0], [9.0, 2.0, 9.0]])}  # fmt: skip
    masks = chains(net, saliency, 2)
    assert masks["0.weight"].tolist() == [[False], [True], [False]]
    assert masks["1.weight"].tolist() == [[False] * 3, [False, True, False]]


def test_the_global_surrogate_looks_past_the_next_connection() -> None:
    _, net = dense([1, 3, 2])
    saliency = {"0.weight": torch.tensor([[1.0], [3.0], [2.0]]),
                "1.weight": torch.tensor([[9.0, 1.0, 9.0], [9.0, 2.0, 8.0]])}  # fmt: skip
    masks = chains(net, saliency, 2, surrogate="global")
    assert masks["0.weight"].tolist() == [[False], [False], [True]]


def test_the_rest_is_filled_with_the_largest_single_connection_between_live_units() -> None:
    """One chain of two, room for one more, and the next chain would take two."""
    _, net = dense([2, 2, 2])
    saliency = {"0.weight": torch.tensor([[5.0, 1.0], [1.0, 5.0]]),
                "1.weight": torch.tensor([[5.0, 2.0], [2.0, 5.0]])}  # fmt: skip
    masks = chains(net, saliency, 3)
    kept = [value for n in saliency for value in saliency[n][masks[n]].tolist()]
    assert sorted(kept) == [2.0, 5.0, 5.0]
    assert count(masks) == liveness(net, masks).count


def test_stochastic_first_choices_are_in_proportion_to_the_score() -> None:
    _, net = dense([1, 3, 1])
    saliency = {"0.weight": torch.tensor([[1.0], [3.0], [6.0]]), "1.weight": torch.ones(1, 3)}
    draws = 2000
    shares = sum(
        chains(net, saliency, 2, stochastic=True, seed=seed)["0.weight"][:, 0].double()
        for seed in range(draws)
    )
    expected = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64)
    spread = (expected * (1 - expected) / draws).sqrt()
    assert ((torch.as_tensor(shares) / draws - expected).abs() < 4 * spread).all()


def test_parameters_left_out_are_wires() -> None:
    model, inputs = ZOO["mlp"]()
    net = trace(model, inputs)
    saliency = saliency_of(model, None, 0)
    whole = {n: torch.ones(s, dtype=torch.bool) for n, s in net.connections.items()}
    for absent in list(saliency):
        some = {n: s for n, s in saliency.items() if n != absent}
        masks = chains(net, some, 40, surrogate="global")
        assert list(masks) == list(some)
        found = liveness(net, whole | masks).live
        assert count(masks) == 40 == sum(int(found[n].sum()) for n in masks)


@pytest.mark.parametrize(
    ("options", "quoted"),
    [({"inverse_alpha": 0.5}, "inverse_alpha=0.5"), ({"inverse_alpha": math.nan}, "=nan"),
     ({"surrogate": "both"}, "surrogate='both'")],
)  # fmt: skip
def test_nonsense_is_quoted(options: dict[str, Any], quoted: str) -> None:
    model, net = dense([2, 2])
    with pytest.raises(TrellisError, match=quoted):
        chains(net, saliency_of(model, None, 0), 2, **options)
