"""The mapping itself: counts, apply, bake, plain state, and errors that say what to do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from tests.masks.models import Symmetric, held_in_every_way, mlp, random_masks
from trellis.errors import TrellisError
from trellis.masks import Mask, Masks, masks_of, plain_tensors

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def bools(*rows: str) -> torch.Tensor:
    return torch.tensor([[c == "1" for c in row] for row in rows])


def twins(make: Callable[[], nn.Module]) -> Iterator[nn.Module]:
    """Two equal models (one under torch's own pruning cannot be copied)."""
    for _ in range(2):
        torch.manual_seed(1)
        yield make().eval()


def test_counts_by_hand() -> None:
    masks = Masks({"a": bools("101", "000"), "b": bools("11")})
    assert (masks.kept, masks.total, masks.budget, masks.sparsity) == (4, 8, 4, 0.5)
    assert list(masks) == ["a", "b"] and len(masks) == 2
    assert masks["a"].tolist() == [[True, False, True], [False, False, False]]


def test_it_prints_as_a_line() -> None:
    assert repr(Masks({"a": bools("1000")})) == (
        "Masks: 1 of 4 connections kept (75 % pruned) in 1 tensor"
    )
    assert repr(Masks({"a": bools("1000"), "b": bools("1111")}, budget=6)) == (
        "Masks: 5 of 8 connections kept (37.5 % pruned, budget 6) in 2 tensors"
    )
    assert repr(Masks({})) == "Masks: 0 of 0 connections kept (0 % pruned) in 0 tensors"


def test_equal_means_the_same_connections() -> None:
    a = Masks({"a": bools("10")}, budget=5)
    assert a == Masks({"a": bools("10")}) and a == {"a": bools("10")}
    assert a != Masks({"a": bools("01")}) and a != Masks({"b": bools("10")}) and a != 3


def test_the_model_does_not_share_memory_with_the_masks() -> None:
    layer = nn.Linear(2, 1)
    given = bools("10")
    Masks({"weight": given}).apply(layer)
    masks_of(layer)["weight"].fill_(True)
    given.fill_(True)
    assert masks_of(layer)["weight"].tolist() == [[True, False]]


@pytest.mark.parametrize("make", [mlp, held_in_every_way])
def test_apply_over_earlier_masks_replaces_them(make: Any) -> None:
    model = make().eval()
    first, second = random_masks(model, seed=1), random_masks(model, seed=2)
    second.apply(model)
    expected, parameters = model(X), list(model.parameters())
    first.apply(model)
    second.apply(model)
    second.apply(model)
    assert torch.equal(model(X), expected)
    assert masks_of(model) == second
    assert list(map(id, model.parameters())) == list(map(id, parameters))
    for module in model.modules():
        if isinstance(module, parametrize.ParametrizationList):
            assert sum(isinstance(transform, Mask) for transform in module) <= 1


def test_apply_leaves_parameters_without_a_mask_alone() -> None:
    model = mlp()
    first = random_masks(model, ["0.weight"])
    first.apply(model)
    second = random_masks(model, ["3.weight"])
    second.apply(model)
    assert masks_of(model) == {**first, **second}


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("make", [mlp, held_in_every_way])
def test_bake_equals_masked_and_leaves_an_ordinary_model(make: Any, applied: bool) -> None:
    model, twin = twins(make)
    masks = random_masks(model)
    expected = masks.apply(twin)(X)
    if applied:
        masks.apply(model)
    assert masks.bake(model) is model
    torch.testing.assert_close(model(X), expected, rtol=0, atol=0)
    for name, mask in masks.items():
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        weight = module._parameters[leaf]
        assert isinstance(weight, nn.Parameter) and weight.requires_grad and weight.is_leaf
        assert not weight[~mask].any() and not weight[~mask].signbit().any()
        assert type(module) is nn.Linear
    assert torch.equal(copy.deepcopy(model)(X), expected)


def test_bake_restores_names_order_and_objects_exactly() -> None:
    model = mlp()
    before = [(name, id(parameter)) for name, parameter in model.named_parameters()]
    keys, attributes = list(model.state_dict()), [set(m.__dict__) for m in model.modules()]
    masks = random_masks(model, ["3.bias", "0.weight", "3.weight"])
    masks.apply(model)
    masks.bake(model)
    assert [(name, id(parameter)) for name, parameter in model.named_parameters()] == before
    assert list(model.state_dict()) == keys
    assert [set(m.__dict__) for m in model.modules()] == attributes


def test_bake_removes_a_parametrization_under_the_mask_and_no_other() -> None:
    model = nn.Sequential(weight_norm(nn.Linear(4, 4)), weight_norm(nn.Linear(4, 4)))
    masks = random_masks(model, ["0.weight"])
    masks.apply(model)
    masks.bake(model)
    assert not parametrize.is_parametrized(model[0])
    assert parametrize.is_parametrized(model[1], "weight")


def test_masking_or_baking_a_copy_of_a_parametrized_model_leaves_the_original_alone() -> None:
    model = nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.ReLU())
    expected = model(X)
    random_masks(model).bake(copy.deepcopy(model))
    random_masks(model, ["0.bias"]).apply(copy.deepcopy(model))
    assert torch.equal(model(X), expected)


def test_bake_of_some_keeps_the_masks_of_others() -> None:
    layer = nn.Linear(3, 3)
    both = random_masks(layer, ["weight", "bias"])
    both.apply(layer)
    Masks({"bias": both["bias"]}).bake(layer)
    assert masks_of(layer) == {"weight": both["weight"]}
    assert list(plain_tensors(layer)) == ["weight", "bias"]


def test_a_parametrization_registered_over_a_mask_is_kept_in_force() -> None:
    layer = nn.Linear(3, 3)
    masks = random_masks(layer, ["weight"])
    masks.apply(layer)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert torch.equal(plain_tensors(layer)["weight"], layer.weight)
    masks.apply(layer)  # the mask now stands last
    assert not layer.weight[~masks["weight"]].any()
    assert masks_of(layer) == masks


@pytest.mark.parametrize("make", [mlp, held_in_every_way])
def test_plain_state_dict_is_what_bake_would_leave_and_changes_nothing(make: Any) -> None:
    model, twin = twins(make)
    masks = random_masks(model)
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    state = masks.plain_state_dict(model)
    after = dict(model.named_parameters())
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    tensors = plain_tensors(masks.bake(twin))
    for name in tensors:
        assert torch.equal(state[name], tensors[name]), name


def test_plain_state_dict_loads_strictly_into_a_fresh_model() -> None:
    model, fresh = mlp(), mlp()
    model(torch.randn(8, 4))  # move the batch norm's statistics
    masks = random_masks(model)
    masks.apply(model)
    fresh.load_state_dict(masks.plain_state_dict(model), strict=True)
    assert torch.equal(fresh.eval()(X), model.eval()(X))
    other = random_masks(model, seed=9)  # masks that are not the model's own replace them
    state = other.plain_state_dict(model)
    assert torch.equal(state["0.weight"] != 0, other["0.weight"])


def test_a_frozen_parameter_stays_frozen() -> None:
    layer = nn.Linear(3, 2).requires_grad_(False)
    masks = random_masks(layer)
    masks.apply(layer)
    assert not layer.weight.requires_grad
    masks.bake(layer)
    assert not layer.weight.requires_grad


def test_attention_weights_that_are_not_layers_of_their_own() -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    masks = random_masks(attention)
    assert list(masks) == ["in_proj_weight", "out_proj.weight"]
    masks.apply(attention)
    masked = attention(X[None], X[None], X[None])[0]
    with torch.inference_mode():  # torch's fused path
        fused = attention(X[None], X[None], X[None])[0]
    baked = masks.bake(attention)(X[None], X[None], X[None])[0]
    torch.testing.assert_close(masked, baked)
    torch.testing.assert_close(fused, baked.detach())


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"0.weigth": torch.ones(5, 4, dtype=torch.bool)}, "'0.weigth': did you mean '0.weight'"),
        ({"zzz": torch.ones(5, 4, dtype=torch.bool)}, "'zzz'; it has 0.weight, 0.bias"),
        ({"2.running_mean": torch.ones(5, dtype=torch.bool)}, "no parameter '2.running_mean'"),
        (
            {"3.weight": torch.ones(3, 5) > 0, "0.weight": torch.ones(4, 5) > 0},
            r"'0.weight': expected .* \(5, 4\), got \(4, 5\)",
        ),
    ],
)
@pytest.mark.parametrize("act", ["apply", "bake", "plain_state_dict"])
def test_masks_that_do_not_fit_are_an_error_and_change_nothing(
    masks: dict[str, torch.Tensor], message: str, act: str
) -> None:
    model = mlp()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(TrellisError, match=message):
        getattr(Masks(masks), act)(model)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"masks": {"w": torch.ones(2)}}, r"'w': expected a bool tensor, got dtype torch.float32"),
        ({"masks": {"w": [True]}}, "'w': expected a bool tensor, got list"),
        ({"masks": {}, "budget": -1}, "budget=-1"),
        ({"masks": {}, "budget": 0.5}, "budget=0.5"),
        (
            {"masks": {}, "provenance": {"x": torch.ones(1)}},
            "provenance: expected values that JSON can hold",
        ),
        (
            {"masks": {}, "provenance": {"x": float("nan")}},
            "provenance: expected values that JSON can hold",
        ),
    ],
)
def test_nonsense_is_refused_when_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TrellisError, match=message):
        Masks(**arguments)
