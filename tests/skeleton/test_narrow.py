"""Narrow networks: the same function of the same inputs, and every kept connection among them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trellis.skeleton import GCN
from trellis.skeleton.model.gcn_stacks import Inside, Narrow, StackSelector
from trellis.training import forward_of, stack

SIZES: dict[str, Any] = {"nodes": 3, "channels": 6, "classes": 4, "heads": 4, "filters": 5}


def networks(count: int, seed: int) -> tuple[GCN, dict[str, Tensor]]:
    torch.manual_seed(seed)
    models = [GCN(**SIZES).double() for _ in range(count)]
    return models[0], stack(models)


def drawn(weights: dict[str, Tensor], share: float, seed: int) -> dict[str, Tensor]:
    """Masks that keep about so much of each parameter, wherever that is."""
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.rand(w.shape, generator=generator) < share for n, w in weights.items()}


@given(st.integers(1, 3), st.integers(0, 99), st.sampled_from([0.0, 0.01, 0.03, 0.1, 0.5, 1.0]))
def test_they_are_the_same_function_and_hold_all_that_is_kept(
    count: int, seed: int, share: float
) -> None:
    model, weights = networks(count, seed)
    masks = drawn(weights, share, seed)
    masked = {name: weight * masks[name] for name, weight in weights.items()}
    narrow = Narrow.of(model, masks)
    assert narrow is not None
    little = narrow.narrow(masked)
    for name, weight in narrow.whole(little).items():
        assert torch.equal(weight, masked[name])
    for name, mask in narrow.whole(narrow.narrow(masks)).items():
        assert torch.equal(mask, masks[name])
    x = torch.randn(count, 7, SIZES["nodes"], SIZES["channels"]).double()
    torch.testing.assert_close(narrow.forward()(little, x), forward_of(model)(masked, x))
    assert {n: tuple(w.shape) for n, w in narrow.alike().named_parameters()} == {
        n: tuple(w.shape[1:]) for n, w in little.items()
    }
    read = weights["dense.weight"].gather(2, narrow.units[:, None].expand(-1, SIZES["classes"], -1))
    assert torch.equal(read, narrow.narrow(weights)["dense.weight"])
    assert narrow.share == 1 or share < 1


@given(st.integers(0, 99), st.sampled_from(["viterbi", "synflow"]))
def test_what_is_chosen_inside_is_what_is_chosen_of_the_whole(seed: int, method: str) -> None:
    model, weights = networks(2, seed)
    whole = StackSelector(model, method)
    worth = {name: weight.abs().float() for name, weight in weights.items()}
    kept = whole(
        worth, {n: torch.ones_like(w, dtype=torch.bool) for n, w in worth.items()}, [40] * 2
    )
    narrow = Narrow.of(model, kept)
    assert narrow is not None
    inside = Inside(whole.sizes, StackSelector(narrow.alike(), method))
    assert (inside.sizes, inside.least) == (whole.sizes, whole.least)
    found = inside(narrow.narrow(worth), narrow.narrow(kept), [20, 25])
    for name, mask in whole(worth, kept, [20, 25]).items():
        assert torch.equal(mask, narrow.whole(found)[name])


@pytest.mark.parametrize(
    "options",
    [{"blocks": 2}, {"combine": "sum"}, {"shared": True}, {"bias": True},
     {"adjacency": torch.eye(3), "edges": "limit"}, {"adjacency": torch.eye(3), "edges": "fixed"}],
)  # fmt: skip
def test_others_are_left_as_they_are(options: dict[str, Any]) -> None:
    model = GCN(**SIZES | options)
    weights = stack([model])
    assert Narrow.of(model, drawn(weights, 0.1, 0)) is None
