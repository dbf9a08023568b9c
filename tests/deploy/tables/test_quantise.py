"""Fewer bits: how far outputs move, and what data is good for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tests.deploy.networks import NETWORKS
from trellis.deploy.format import read_bytes, to_bytes
from trellis.deploy.tables import Tables, interpreted, tables
from trellis.deploy.tables.quantize import stored
from trellis.errors import TrellisError


def moved(plain: Tables, other: Tables, x: torch.Tensor) -> float:
    wanted = interpreted(plain, x.numpy())
    return float(np.abs(interpreted(other, x.numpy()) - wanted).mean() / np.abs(wanted).mean())


@pytest.mark.parametrize("network", NETWORKS)
def test_outputs_move_little(network: str) -> None:
    model, example = NETWORKS[network]()
    plain = tables(model, example)
    x = torch.randn(40, *example.shape[1:])
    assert moved(plain, stored(plain, "fp16"), x) < 2e-3
    assert moved(plain, stored(plain, "int8"), x) < 2e-2


def test_data_makes_int8_better() -> None:
    model = nn.Sequential(nn.Linear(200, 20), nn.ReLU(), nn.Linear(20, 4))
    plain = tables(model, torch.zeros(1, 200))
    x = 2.0 * torch.rand(200) + torch.randn(300, 200)  # of which some means are far from zero
    blind = moved(plain, stored(plain, "int8"), x[150:])
    assert moved(plain, stored(plain, "int8", x[:150].numpy()), x[150:]) < 0.9 * blind


def test_largest_weight_is_exact_enough() -> None:
    """A row of one weight is one number times another: int8 loses next to nothing."""
    model = torch.nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.diag(torch.tensor([1e-3, 0.7, 3.0, 1e4])))
    found = stored(tables(model, torch.zeros(1, 4)), "int8")
    step = found.steps[0]
    weights = np.sort(step.weights.astype(np.float64) * step.scale)
    np.testing.assert_allclose(weights, [1e-3, 0.7, 3.0, 1e4], rtol=1e-3)


@pytest.mark.parametrize("values", ["fp32", "fp16", "int8"])
def test_stored_survives_the_file(values: str) -> None:
    model, example = NETWORKS["cnn"]()
    found = stored(tables(model, example), values)
    again = read_bytes(to_bytes(found))
    x = torch.randn(3, *example.shape[1:]).numpy()
    np.testing.assert_array_equal(interpreted(again, x), interpreted(found, x))


def test_tiny_weights_survive_fp16() -> None:
    model = torch.nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        model.weight.mul_(1e-7)
    found = stored(tables(model, torch.zeros(1, 3)), "fp16")
    x = np.ones((1, 3), np.float32)
    np.testing.assert_allclose(
        interpreted(found, x)[0], model.weight.sum(1).detach().numpy(), rtol=2e-3
    )


def test_wrong_values_are_told() -> None:
    model, example = NETWORKS["gcn"]()
    plain = tables(model, example)
    with pytest.raises(TrellisError, match="values='int4'"):
        stored(plain, "int4")
    with pytest.raises(TrellisError, match="already int8"):
        stored(stored(plain, "int8"), "fp16")
