"""State dicts of masked models: those of the unpruned model, with zeros."""

from __future__ import annotations

import io
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import trellis
from tests.masks.models import TinyGPT, mlp, random_masks

X = torch.randn(3, 4)


class Attention(nn.Module):
    """Own parameters beside those of children, which come later in a state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2)
        self.rnn = nn.LSTM(8, 4)
        self.scale = nn.Parameter(torch.randn(3))


@pytest.mark.parametrize("make", [mlp, TinyGPT, Attention, lambda: nn.Linear(4, 2)])
def test_keys_order_and_metadata_are_those_of_the_unpruned_model(make: Any) -> None:
    model = make()
    before = model.state_dict()
    masks = random_masks(model)
    masks.apply(model)
    after = model.state_dict()
    assert list(after) == list(before) == list(deepcopy(model).state_dict())
    assert list(after._metadata) == list(before._metadata)
    parameters = {name: mask for name, mask in masks.items()}
    assert all(not after[name][~mask].any() for name, mask in parameters.items())
    fresh = make()
    fresh.load_state_dict(after)
    assert all(torch.equal(t, after[name]) for name, t in fresh.state_dict().items())
    given: dict[str, torch.Tensor] = {"before": torch.zeros(1)}
    found = model.state_dict(destination=given, prefix="part.")
    assert list(found) == ["before", *(f"part.{name}" for name in before)] and found is given


def test_a_state_dict_shares_memory_and_ties() -> None:
    model = TinyGPT()
    random_masks(model).apply(model)
    state = model.state_dict()
    assert state["embed.weight"].data_ptr() == state["head.weight"].data_ptr()
    kept = state["hidden.weight"] != 0
    state["hidden.weight"].fill_(2.0)
    assert torch.equal(model.hidden.weight, 2.0 * kept)
    parameters = set(map(id, model.parameters()))
    assert set(map(id, model.state_dict(keep_vars=True).values())) == parameters


@pytest.mark.parametrize("assign", [False, True])
def test_weights_load_with_or_without_masks(assign: bool) -> None:
    model, other = mlp(), mlp()
    masks, others = random_masks(model, seed=1), random_masks(other, seed=2)
    initial = deepcopy(model.state_dict())
    masks.apply(model)
    others.apply(other)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    other.load_state_dict(state, assign=assign)  # which brings its masks, as a buffer would
    assert trellis.masks_of(other) == masks
    assert torch.equal(other.eval()(X), model.eval()(X))
    others.apply(other)
    other.load_state_dict(dict(state), assign=assign)  # only weights: the masks stay
    assert trellis.masks_of(other) == others
    model.load_state_dict(initial, assign=assign)  # rewound
    assert trellis.masks_of(model) == masks
    for name, mask in masks.items():
        assert torch.equal(model.state_dict()[name], initial[name] * mask)


def test_keys_of_earlier_releases_load() -> None:
    model, other = mlp(), mlp()
    masks = random_masks(model, seed=1)
    masks.apply(model)
    random_masks(other, seed=2).apply(other)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name, mask in masks.items():
        owner, _, leaf = name.rpartition(".")
        place = f"{owner}.parametrizations.{leaf}"
        state[f"{place}.original"], state[f"{place}.0.mask"] = state.pop(name), mask
    other.load_state_dict(state)
    assert trellis.masks_of(other) == masks
    assert torch.equal(other.eval()(X), model.eval()(X))


def test_what_is_missing_or_unexpected_is_told_by_plain_names() -> None:
    model = mlp()
    random_masks(model).apply(model)
    state = dict(model.state_dict())
    del state["0.weight"]
    state["0.other"] = torch.zeros(1)
    told = model.load_state_dict(state, strict=False)
    assert (told.missing_keys, told.unexpected_keys) == (["0.weight"], ["0.other"])


def test_other_parametrizations_keep_their_keys() -> None:
    model = nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.Linear(4, 2))
    keys = list(model.state_dict())
    masks = random_masks(model, ["0.weight", "1.weight"])
    masks.apply(model)
    state = model.state_dict()
    assert sorted(state) == sorted([*keys, "0.parametrizations.weight.1.mask"])
    fresh = nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.Linear(4, 2))
    random_masks(fresh, ["0.weight", "1.weight"], seed=4).apply(fresh)
    fresh.load_state_dict(state)
    assert trellis.masks_of(fresh) == masks and torch.equal(fresh(X), model(X))


@pytest.mark.parametrize("make", [mlp, TinyGPT, Attention])
def test_undone_a_model_is_what_it_was(make: Any) -> None:
    model = make()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    kinds = [type(module) for module in model.modules()]
    masks = random_masks(model)
    masks.undo(masks.apply(model))
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert [type(module) for module in model.modules()] == kinds
    masks.undo(model)  # nothing is left to undo


def test_a_pruner_prints_when_its_masks_are_gone() -> None:
    for gone in (trellis.Masks.bake, trellis.Masks.undo):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        schedule = trellis.Schedule("cubic", end=4)
        pruner = trellis.Pruner(model, torch.zeros(1, 4), sparsity=0.5, schedule=schedule)
        pruner.step()
        gone(pruner.masks, model)
        assert "step 1 of 4" in repr(pruner)
