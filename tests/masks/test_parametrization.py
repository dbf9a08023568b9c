"""What a masked weight computes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from tests.masks.models import mlp, random_masks
from trellis.masks import Mask, Masks, masks_of, plain_tensors

KEPT = torch.tensor([[True, False, True], [False, True, False]])


def masked_linear(dtype: torch.dtype = torch.float32) -> nn.Linear:
    layer = nn.Linear(3, 2, bias=False, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[-1.0, -2.0, 3.0], [-4.0, 5.0, 6.0]]))
    return Masks({"weight": KEPT}).apply(layer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_pruned_connections_are_positive_zero_in_every_dtype(dtype: torch.dtype) -> None:
    weight = masked_linear(dtype).weight
    assert weight.dtype == dtype
    assert weight.tolist() == [[-1.0, 0.0, 3.0], [0.0, 5.0, 0.0]]
    assert not weight[~KEPT].signbit().any()


@pytest.mark.parametrize("nonsense", [torch.nan, torch.inf, -torch.inf])
def test_a_pruned_nan_or_infinity_does_not_show(nonsense: float) -> None:
    layer = masked_linear()
    stored = next(layer.parameters())
    with torch.no_grad():
        stored[~KEPT] = nonsense
    out = layer(torch.ones(1, 3))
    out.sum().backward()
    assert out.tolist() == [[2.0, 5.0]]
    assert stored.grad is not None and stored.grad.tolist() == KEPT.float().tolist()


def test_the_gradient_is_the_dense_gradient_where_kept_and_zero_elsewhere() -> None:
    layer = masked_linear()
    dense = nn.Linear(3, 2, bias=False)
    dense.load_state_dict({"weight": plain_tensors(layer)["weight"]})
    x = torch.randn(5, 3)
    for network in (layer, dense):
        network(x).square().sum().backward()
    masked, full = next(layer.parameters()).grad, dense.weight.grad
    assert masked is not None and full is not None
    assert torch.equal(masked, torch.where(KEPT, full, 0))


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
        lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    ],
    ids=["sgd", "adamw", "adam"],
)
def test_an_optimizer_made_before_pruning_trains_on_and_revives_nothing(optimizer: Any) -> None:
    model = mlp()
    opt = optimizer(model.parameters())
    x, y = torch.randn(16, 4), torch.randn(16, 3)

    def step() -> float:
        opt.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        opt.step()
        return loss.item()

    step()  # momentum that points everywhere
    stored = list(model.parameters())
    masks = random_masks(model)
    masks.apply(model)
    assert {id(p) for p in model.parameters()} == {id(p) for p in stored}
    before = {name: tensor.clone() for name, tensor in plain_tensors(model).items()}
    losses = [step() for _ in range(20)]
    assert losses[-1] < losses[0]
    for name, mask in masks.items():
        after = plain_tensors(model)[name]
        assert torch.equal(after[~mask], torch.zeros_like(after[~mask]))
        assert not torch.equal(after[mask], before[name][mask])
    masks.bake(model)
    for name, mask in masks.items():
        assert not plain_tensors(model)[name][~mask].any()


def test_a_masked_model_copies_after_a_forward_pass_and_the_copy_is_its_own() -> None:
    model = mlp()
    masks = random_masks(model)
    masks.apply(model)
    model(torch.randn(8, 4)).sum().backward()
    copied = copy.deepcopy(model)
    x = torch.randn(2, 4)
    assert torch.equal(copied.eval()(x), model.eval()(x))
    assert masks_of(copied) == masks
    expected = model(x)
    everything = {
        name: torch.ones_like(tensor) > 0 for name, tensor in plain_tensors(model).items()
    }
    for change in (masks.apply, Masks(everything).apply, masks.bake):
        change(copied)
        assert masks_of(model) == masks
        assert torch.equal(model(x), expected)


def test_state_dict_of_a_masked_model_loads_into_another_masked_model() -> None:
    model, other = mlp(), mlp()
    masks = random_masks(model, seed=1)
    masks.apply(model)
    random_masks(other, seed=2).apply(other)
    other.load_state_dict(model.state_dict())
    assert masks_of(other) == masks
    x = torch.randn(2, 4)
    assert torch.equal(other.eval()(x), model.eval()(x))


def test_assigning_a_weight_to_a_masked_layer_keeps_its_mask() -> None:
    layer = masked_linear()
    with torch.no_grad():
        layer.weight = torch.full((2, 3), 7.0)
    assert torch.equal(layer.weight, 7.0 * KEPT)


def test_autocast_computes_in_low_precision_and_stores_in_full() -> None:
    layer = masked_linear()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(torch.ones(1, 3))
    out.float().sum().backward()
    grad = next(layer.parameters()).grad
    assert out.dtype == torch.bfloat16 and out.tolist() == [[2.0, 5.0]]
    assert grad is not None and grad.dtype == torch.float32


def test_compiled_equals_eager() -> None:
    # Without code generation, which takes minutes: what can go wrong is the capture.
    model = mlp().eval()
    random_masks(model).apply(model)
    x = torch.randn(2, 4)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))


def test_a_cast_of_the_model_leaves_the_mask_boolean() -> None:
    layer = masked_linear().to(torch.bfloat16)
    assert layer.weight.dtype == torch.bfloat16
    assert [m.mask.dtype for m in layer.modules() if isinstance(m, Mask)] == [torch.bool]
    assert [m for m in layer.modules() if isinstance(m, Mask)]
