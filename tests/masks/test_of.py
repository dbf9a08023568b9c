"""Reading masks back, ours and torch's, and ours taking the place of torch's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tests.masks.models import mlp, random_masks, weight
from trellis import Masks, masks_of
from trellis.errors import TrellisError
from trellis.masks import plain_tensors

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_what_was_applied_is_what_is_read() -> None:
    model = mlp()
    masks = random_masks(model)
    assert masks_of(masks.apply(model)) == masks


def test_torchs_masks_are_read_through_iterated_pruning() -> None:
    model = mlp()
    prune.l1_unstructured(model[0], "weight", amount=4)
    prune.random_unstructured(model[0], "weight", amount=4)  # a container of methods
    prune.random_unstructured(model[3], "bias", amount=1)
    found = masks_of(model)
    assert {name: int((~mask).sum()) for name, mask in found.items()} == {
        "0.weight": 8,
        "3.bias": 1,
    }
    assert torch.equal(plain_tensors(model)["0.weight"], weight(model, "0"))


def test_applying_torchs_own_masks_changes_nothing_and_frees_the_model_of_them() -> None:
    model = mlp().eval()
    fresh = list(model.state_dict())
    stored = model[0].weight
    prune.global_unstructured(
        [(model[0], "weight"), (model[3], "weight")], prune.L1Unstructured, amount=0.6
    )
    expected = model(X)
    masks = masks_of(model)
    masks.apply(model)
    assert torch.equal(model(X), expected)
    assert not prune.is_pruned(model)
    assert any(parameter is stored for parameter in model.parameters())
    assert list(masks.plain_state_dict(model)) == fresh
    copy.deepcopy(model)  # torch's own pruning leaves a tensor that cannot be copied


def test_torchs_masks_give_way_and_the_weights_under_them_come_back() -> None:
    layer = nn.Linear(4, 2)
    before = layer.weight.detach().clone()
    prune.l1_unstructured(layer, "weight", amount=6)
    Masks({"weight": torch.ones(2, 4, dtype=torch.bool)}).apply(layer)
    assert torch.equal(layer.weight, before)


def test_bake_on_torchs_masks() -> None:
    model = mlp().eval()
    prune.l1_unstructured(model[0], "weight", amount=7)
    expected, masks = model(X), masks_of(model)
    masks.bake(model)
    assert torch.equal(model(X), expected)
    assert [name for name, _ in model[0].named_parameters()] == ["weight", "bias"]
    assert not weight(model, "0")[~masks["0.weight"]].signbit().any()


def test_a_user_hook_beside_torchs_pruning_stays() -> None:
    layer = nn.Linear(4, 2)
    calls = []
    layer.register_forward_pre_hook(lambda module, args: calls.append(1))
    prune.l1_unstructured(layer, "weight", amount=6)
    masks_of(layer).apply(layer)
    layer(X)
    assert calls == [1]


def test_a_model_without_masks_is_an_error() -> None:
    with pytest.raises(TrellisError, match="has no masks"):
        masks_of(mlp())
