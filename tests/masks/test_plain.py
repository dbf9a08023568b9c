"""A model seen as if nothing had been registered on it, and put back as it was."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from tests.masks.models import Symmetric, TinyGPT, held_in_every_way, mlp, random_masks, weight
from trellis.errors import TrellisError
from trellis.masks import aliases, plain, plain_tensors
from trellis.masks.slots import Entangled


def photograph(model: nn.Module) -> list[Any]:
    """Everything `plain` touches, by identity: class, attributes, and what the dicts hold."""
    return [
        (
            id(module),
            type(module),
            module.training,
            [(name, id(value)) for name, value in module.__dict__.items()],
            [(name, id(value)) for name, value in module._parameters.items()],
            [(name, id(value)) for name, value in module._buffers.items()],
            [(name, id(value)) for name, value in module._modules.items()],
            [(handle, id(hook)) for handle, hook in module._forward_pre_hooks.items()],
        )
        for module in model.modules()
    ]


def test_a_plain_model_lists_its_own_parameters_without_copying() -> None:
    model = mlp()
    tensors = plain_tensors(model)
    assert list(tensors) == [name for name, _ in model.named_parameters()]
    for name, parameter in model.named_parameters():
        assert tensors[name].data_ptr() == parameter.data_ptr()
        assert not tensors[name].requires_grad


def test_names_and_order_do_not_depend_on_what_is_registered() -> None:
    model = mlp()
    names = list(plain_tensors(model))
    random_masks(model, ["3.bias", "0.weight", "2.weight"]).apply(model)
    assert list(plain_tensors(model)) == names


def test_effective_values() -> None:
    model = held_in_every_way().eval()
    tensors = plain_tensors(model)
    for name, tensor in tensors.items():
        owner, _, leaf = name.rpartition(".")
        assert torch.equal(tensor, getattr(model.get_submodule(owner), leaf)), name
    assert list(tensors) == [
        *("0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias", "3.weight", "3.bias"),
        *("4.weight", "4.bias", "5.0.weight", "6.weight", "6.bias"),
    ]


def test_reading_does_not_advance_spectral_norm_in_training_mode() -> None:
    layer = spectral_norm(nn.Linear(4, 4)).train()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    plain_tensors(layer)
    masks = random_masks(layer)
    masks.plain_state_dict(layer)
    masks.apply(layer)
    for name, value in before.items():
        assert torch.equal(layer.state_dict()[name], value), name


def test_tied_names_are_one_tensor() -> None:
    model = TinyGPT()
    expected = {
        "embed.weight": ["embed.weight", "head.weight"],
        "hidden.weight": ["hidden.weight"],
        "hidden.bias": ["hidden.bias"],
    }
    assert aliases(model) == expected
    random_masks(model).apply(model)
    assert aliases(model) == expected


def test_two_parameters_over_one_memory_are_tied_and_two_halves_of_it_are_not() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = nn.Parameter(weight(model, "0").detach())
    assert aliases(model) == {"0.weight": ["0.weight", "1.weight"]}
    flat = torch.randn(4, 2)
    model[0].weight, model[1].weight = nn.Parameter(flat[:2]), nn.Parameter(flat[2:])
    assert aliases(model) == {"0.weight": ["0.weight"], "1.weight": ["1.weight"]}


def test_a_module_used_under_two_names_is_tied() -> None:
    layer = nn.Linear(2, 2, bias=False)
    assert aliases(nn.Sequential(layer, nn.ReLU(), layer)) == {"0.weight": ["0.weight", "2.weight"]}


def test_aliases_that_compute_with_different_values_are_different_tensors() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    parametrize.register_parametrization(model[1], "weight", Symmetric())
    assert aliases(model) == {"0.weight": ["0.weight"], "1.weight": ["1.weight"]}
    tensors = plain_tensors(model)
    assert torch.equal(tensors["1.weight"], weight(model, "1"))
    assert torch.equal(tensors["0.weight"], weight(model, "0"))
    assert not torch.equal(tensors["0.weight"], tensors["1.weight"])


@pytest.fixture(params=["a copy", "itself"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `plain` hands out, where both are possible."""
    if request.param == "itself":
        module = importlib.import_module("trellis.masks.masked")
        monkeypatch.setattr(module, "structural_copy", refuse)


def refuse(model: nn.Module) -> nn.Module:
    raise Entangled


def test_inside_plain_the_model_is_plain_and_computes_the_same() -> None:
    model = held_in_every_way().eval()
    x = torch.randn(3, 4)
    expected, tensors = model(x), plain_tensors(model)
    with plain(model) as seen:
        assert isinstance(seen, nn.Sequential)
        assert not any(parametrize.is_parametrized(module) for module in seen.modules())
        assert not prune.is_pruned(seen)
        assert dict(seen.named_parameters()).keys() == tensors.keys()
        assert set(map(type, seen.modules())) == {nn.Sequential, nn.Linear, nn.BatchNorm1d}
        assert weight(seen, "5.0") is weight(seen, "5.1")
        assert "running_mean" in dict(seen[6].named_buffers())
        torch.testing.assert_close(seen(x), expected)


def test_what_is_set_on_a_masked_module_inside_plain_is_gone_after() -> None:
    model = mlp()
    random_masks(model).apply(model)
    with plain(model) as seen:
        assert isinstance(seen, nn.Sequential)
        assert vars(seen[0]).keys() == vars(nn.Linear(4, 5)).keys()
        seen[0].note = "seen"  # type: ignore[assignment]
    assert not hasattr(model[0], "note")


def test_plain_has_the_state_dict_keys_of_the_unpruned_model_in_order() -> None:
    model = mlp()
    keys = list(model.state_dict())
    random_masks(model, ["0.weight", "3.bias"]).apply(model)
    prune.random_unstructured(model[3], "weight", amount=3)
    with plain(model) as seen:
        assert list(seen.state_dict()) == keys


@pytest.mark.parametrize("make", [mlp, TinyGPT, held_in_every_way])
def test_plain_restores_everything_on_success_and_on_failure(make: Any) -> None:
    model = make().train()
    next(model.children()).eval()  # a flag of its own
    before = photograph(model)
    with plain(model) as seen:
        assert not any(module.training for module in seen.modules())
        assert (photograph(model) == before) == (seen is not model)
    assert photograph(model) == before
    with pytest.raises(ZeroDivisionError), plain(model):
        1 / 0  # noqa: B018
    assert photograph(model) == before


def test_a_plain_masked_model_exports_to_the_same_graph_as_the_dense_one() -> None:
    def graph(network: nn.Module) -> str:
        with plain(network) as seen:
            return torch.export.export(seen, (torch.ones(2, 4),)).graph_module.code

    model = mlp()
    dense = graph(model)
    random_masks(model).apply(model)
    prune.random_unstructured(model[3], "bias", amount=1)
    assert graph(model) == dense


def test_a_parametrized_root() -> None:
    layer = weight_norm(nn.Linear(2, 3))
    assert list(plain_tensors(layer)) == ["weight", "bias"]
    with plain(layer) as seen:
        assert type(seen) is nn.Linear


def test_lazy_layers_are_a_clear_error() -> None:
    with pytest.raises(TrellisError, match=r"'0.weight'.*call the model once"):
        plain_tensors(nn.Sequential(nn.LazyLinear(3)))
