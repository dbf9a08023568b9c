"""Small models that hold their weights in all the ways a mask must cope with."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from trellis import Masks
from trellis.masks import plain_tensors


class TinyGPT(nn.Module):
    """An embedding tied to the output layer, with a layer between."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.hidden = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.hidden(self.embed(tokens)).relu())
        return logits


class Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).mT


def weight(model: nn.Module, owner: str) -> Tensor:
    """What the module of that name computes with."""
    value = model.get_submodule(owner).weight
    assert isinstance(value, Tensor)
    return value


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 3))


def held_in_every_way() -> nn.Sequential:
    """Our masks, torch's, weight norm, spectral norm, a masked weight norm, a tied pair."""
    tied_a, tied_b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    tied_b.weight = tied_a.weight
    buffered = nn.BatchNorm1d(4)
    parametrize.register_parametrization(buffered, "running_mean", nn.Tanh())
    model = nn.Sequential(
        nn.Linear(4, 4),
        prune.l1_unstructured(nn.Linear(4, 4), "weight", amount=5),
        weight_norm(nn.Linear(4, 4)),
        spectral_norm(nn.Linear(4, 4)),
        weight_norm(nn.Linear(4, 4)),
        nn.Sequential(tied_a, tied_b),
        buffered,
    )
    return random_masks(model, ["0.weight", "4.weight", "5.0.weight"]).apply(model)


def random_masks(model: nn.Module, names: list[str] | None = None, seed: int = 0) -> Masks:
    """About half of the connections of each parameter named, or of each matrix."""
    generator = torch.Generator().manual_seed(seed)
    return Masks(
        {
            name: torch.rand(tensor.shape, generator=generator) < 0.5
            for name, tensor in plain_tensors(model).items()
            if (name in names if names is not None else tensor.ndim > 1)
        }
    )
