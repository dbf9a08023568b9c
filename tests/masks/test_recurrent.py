"""Recurrent layers keep a list of their weights beside the parameters; masks must reach it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tests.masks.models import random_masks
from trellis import masks_of
from trellis.masks import plain

X = torch.linspace(-1, 1, 24).reshape(2, 4, 3)


@pytest.fixture(params=[nn.RNN, nn.LSTM, nn.GRU])
def layer(request: pytest.FixtureRequest) -> Any:
    return make(request.param)


def make(kind: Any) -> Any:
    return kind(3, 2, num_layers=2, bidirectional=True, batch_first=True)


def reference(layer: nn.RNNBase) -> torch.Tensor:
    """What a fresh layer with the masked weights computes."""
    fresh = make(type(layer))
    fresh.load_state_dict(random_masks(layer).plain_state_dict(layer), strict=True)
    result: torch.Tensor = fresh(X)[0]
    return result


def test_masked_copied_plain_and_baked_compute_with_the_masked_weights(layer: nn.RNNBase) -> None:
    keys, dense, expected = list(layer.state_dict()), layer(X)[0], reference(layer)
    assert not torch.equal(dense, expected)
    masks = random_masks(layer)
    masks.apply(layer)
    assert torch.equal(layer(X)[0], expected)
    copied = copy.deepcopy(copy.deepcopy(layer))  # a copy of a copy, after a call
    assert torch.equal(copied(X)[0], expected)
    assert masks_of(copied) == masks
    copied.double()
    torch.testing.assert_close(copied(X.double())[0].float(), expected)
    with plain(layer) as seen:
        assert isinstance(seen, nn.RNNBase)
        assert list(seen.state_dict()) == keys
        assert list(map(id, seen._flat_weights)) == list(map(id, seen.parameters()))
        assert torch.equal(seen(X)[0], expected)
    assert torch.equal(layer(X)[0], expected)
    masks.bake(layer)
    assert torch.equal(layer(X)[0], expected)
    assert list(layer.state_dict()) == keys
    assert torch.equal(copy.deepcopy(layer)(X)[0], expected)


def test_training_moves_the_masked_layer(layer: nn.RNNBase) -> None:
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    masks = random_masks(layer)
    masks.apply(layer)
    before = layer(X)[0]
    before.square().sum().backward()
    optimizer.step()
    after = layer(X)[0]
    assert not torch.equal(after, before)
    masks.bake(layer)
    assert torch.equal(layer(X)[0], after)


def test_torchs_masks_on_a_recurrent_layer(layer: nn.RNNBase) -> None:
    prune.l1_unstructured(layer, "weight_hh_l0", amount=2)
    expected = layer(X)[0]
    with plain(layer) as seen:
        assert torch.equal(seen(X)[0], expected)
    masks_of(layer).apply(layer)
    assert torch.equal(layer(X)[0], expected)
