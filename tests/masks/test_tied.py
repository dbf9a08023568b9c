"""One parameter under several names is pruned once, everywhere."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tests.masks.models import Symmetric, TinyGPT, random_masks
from trellis.errors import TrellisError
from trellis.masks import Mask, Masks, aliases, masks_of, plain, plain_tensors

TOKENS = torch.tensor([[0, 3, 6]])


def assert_tied(model: nn.Module) -> None:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    stored = [parameters[f"{name}.parametrizations.weight.original"] for name in ("embed", "head")]
    assert stored[0] is stored[1]
    places = [f"{name}.parametrizations.weight.0" for name in ("embed", "head")]
    masks = [model.get_submodule(place).mask for place in places]
    assert masks[0] is masks[1]


@pytest.mark.parametrize("name", ["embed.weight", "head.weight"])
def test_either_name_masks_both_and_they_share_parameter_and_mask(name: str) -> None:
    model = TinyGPT()
    mask = torch.rand(7, 4) < 0.5
    Masks({name: mask}).apply(model)
    assert_tied(model)
    assert torch.equal(model.embed.weight, model.head.weight)
    assert masks_of(model) == Masks({"embed.weight": mask})


def test_they_stay_tied_through_copying_casting_and_loading() -> None:
    model = TinyGPT()
    random_masks(model).apply(model)
    model(TOKENS).sum().backward()
    copied = copy.deepcopy(model)
    copied.load_state_dict(model.state_dict())
    copied.double()
    assert_tied(copied)
    torch.testing.assert_close(copied(TOKENS).float(), model(TOKENS))


def test_both_uses_give_gradient_to_the_one_parameter() -> None:
    model = TinyGPT()
    dense = copy.deepcopy(model)
    masks = random_masks(model)
    masks.apply(model)
    dense.load_state_dict(masks.plain_state_dict(model))
    for network in (model, dense):
        network(TOKENS).square().sum().backward()
    stored = model.get_parameter("embed.parametrizations.weight.original")
    full = dense.embed.weight.grad
    assert stored.grad is not None and full is not None
    assert torch.equal(stored.grad, torch.where(masks["embed.weight"], full, 0))


def test_plain_state_dict_has_every_alias_and_loads_strictly() -> None:
    model, fresh = TinyGPT(), TinyGPT()
    keys = list(model.state_dict())
    masks = random_masks(model)
    masks.apply(model)
    state = masks.plain_state_dict(model)
    assert list(state) == keys
    assert state["head.weight"] is state["embed.weight"]
    fresh.load_state_dict(state, strict=True)
    assert fresh.head.weight is fresh.embed.weight
    assert torch.equal(fresh(TOKENS), model(TOKENS))


def test_bake_leaves_one_plain_parameter() -> None:
    model = TinyGPT()
    stored, keys = model.embed.weight, list(model.state_dict())
    masks = random_masks(model)
    masks.apply(model)
    expected = model(TOKENS)
    masks.bake(model)
    assert model.embed.weight is stored and model.head.weight is stored
    assert list(model.state_dict()) == keys
    assert torch.equal(model(TOKENS), expected)
    assert not any(isinstance(module, Mask) for module in model.modules())


def test_two_parameters_over_one_memory_share_the_mask_and_the_memory_after_bake() -> None:
    model = TinyGPT()
    model.head.weight = nn.Parameter(model.embed.weight.detach())
    masks = random_masks(model)
    assert list(masks) == ["embed.weight", "hidden.weight"]
    masks.apply(model)
    assert torch.equal(model.head.weight, model.embed.weight)
    masks.bake(model)
    assert model.head.weight.data_ptr() == model.embed.weight.data_ptr()
    assert not model.head.weight[~masks["embed.weight"]].any()


def test_torchs_masks_on_one_alias_only_are_told_apart_and_survive_apply() -> None:
    model = TinyGPT()
    prune.l1_unstructured(model.head, "weight", amount=10)
    assert aliases(model)["embed.weight"] == ["embed.weight"]
    found = masks_of(model)
    assert list(found) == ["head.weight"] and found.kept == 18

    both = Masks({"embed.weight": torch.ones(7, 4, dtype=torch.bool), **found})
    expected = model(TOKENS)
    both.apply(model)
    assert torch.equal(model(TOKENS), expected)
    assert masks_of(model) == both
    with plain(model) as seen:
        assert isinstance(seen, TinyGPT)
        assert seen.embed.weight is not seen.head.weight
    assert torch.equal(both.plain_state_dict(model)["head.weight"], model.head.weight)
    with pytest.raises(TrellisError, match=r"'embed.weight', 'head.weight'.*different masks"):
        both.bake(model)


def test_torchs_equal_masks_on_both_aliases_are_one() -> None:
    model = TinyGPT()
    prune.l1_unstructured(model.embed, "weight", amount=10)
    prune.l1_unstructured(model.head, "weight", amount=10)
    found = masks_of(model)
    assert list(found) == ["embed.weight"] and found.kept == 18
    found.apply(model)
    assert_tied(model)


def test_baking_a_parametrized_alias_leaves_the_other_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    nn.utils.parametrize.register_parametrization(model[1], "weight", Symmetric())
    masks = random_masks(model, ["1.weight"])
    masks.apply(model)
    expected = {name: tensor.clone() for name, tensor in plain_tensors(model).items()}
    masks.bake(model)
    for name, tensor in plain_tensors(model).items():
        assert torch.equal(tensor, expected[name]), name


def test_baking_a_shared_parametrization_evaluates_it_once() -> None:
    class Double(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return 2 * weight

    model, double = TinyGPT(), Double()
    for layer in (model.embed, model.head):
        nn.utils.parametrize.register_parametrization(layer, "weight", double)
    assert aliases(model)["embed.weight"] == ["embed.weight", "head.weight"]
    masks = random_masks(model)
    masks.apply(model)
    expected = model(TOKENS)
    masks.bake(model)
    assert torch.equal(model(TOKENS), expected)
    assert model.embed.weight is model.head.weight
