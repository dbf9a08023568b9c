"""Where in memory parameters and saliencies lie makes no difference."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import trellis
from tests.training.networks import gcn

MODELS = {
    "linear": (
        nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3, bias=False)),
        torch.zeros(1, 5),
    ),
    "convolution": (
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)),
        torch.zeros(1, 2, 4, 4),
    ),
    "gcn": (gcn(0).float(), torch.zeros(1, 5, 6)),
    "recurrent": (nn.LSTM(4, 3), torch.zeros(2, 1, 4)),
}


def flattened(model: nn.Module) -> nn.Module:
    """The same model, its parameters views of one vector, with room before each."""
    made = copy.deepcopy(model)
    parameters = list(made.parameters())
    vector = torch.randn(sum(p.numel() + 3 for p in parameters))
    place = 0
    for parameter in parameters:
        part = vector[place + 3 : place + 3 + parameter.numel()].view_as(parameter)
        part.copy_(parameter.data)
        parameter.data = part
        place += parameter.numel() + 3
    return made


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", ["viterbi", "magnitude", "synflow"])
def test_parameters_in_one_vector_are_audited_and_pruned_alike(name: str, method: str) -> None:
    torch.manual_seed(0)
    model, x = MODELS[name]
    plain, flat = copy.deepcopy(model), flattened(model)
    for each in (plain, flat):
        trellis.prune(each, x, sparsity=0.5, method=method)
    masks = trellis.masks_of(plain), trellis.masks_of(flat)
    assert all(torch.equal(masks[0][key], masks[1][key]) for key in masks[0])
    assert trellis.audit(plain, x).to_dict() == trellis.audit(flat, x).to_dict()
    for each in (plain, flat):  # zeros, without masks
        trellis.masks_of(each).bake(each)
    again = flattened(plain)
    assert trellis.audit(plain, x).to_dict() == trellis.audit(again, x).to_dict()


@pytest.mark.parametrize("name", MODELS)
def test_saliencies_may_be_slices(name: str) -> None:
    model, x = MODELS[name]
    torch.manual_seed(1)
    stacked = {n: torch.rand(3, *p.shape) for n, p in model.named_parameters()}
    connections = trellis.trace(model, x).connections
    slices = {n: value[1] for n, value in stacked.items() if n in connections}
    copies = {n: value.clone() for n, value in slices.items()}
    found = [
        trellis.prune(copy.deepcopy(model), x, sparsity=0.5, saliency=each)
        for each in (slices, copies)
    ]
    assert all(torch.equal(found[0][n], found[1][n]) for n in found[0])
