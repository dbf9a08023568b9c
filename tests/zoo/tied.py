"""Weights used twice, and weights computed from others."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from .seeded import Example, seeded


class Autoencoder(nn.Module):
    """The decoder is the encoder's weight, transposed."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.relu(self.encoder(x)), self.encoder.weight.t())


@seeded
def tied_autoencoder() -> Example:
    """x [1, 8] -> [1, 8]."""
    return Autoencoder(8, 5), (torch.randn(1, 8),)


class TiedEmbedding(nn.Module):
    """A language model whose head shares the embedding's parameter."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.hidden = nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.hidden(self.embedding(ids))))


@seeded
def tied_embedding() -> Example:
    """ids [1, 3] -> [1, 3, 12]."""
    return TiedEmbedding(12, 6), (torch.randint(0, 12, (1, 3)),)


@seeded
def shared_layer() -> Example:
    """One dense layer applied three times; x [1, 6] -> [1, 6]."""
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), layer), (torch.randn(1, 6),)


class Tanh(nn.Module):
    """The weight that is used is tanh of the parameter: zero where it is zero."""

    def forward(self, weight: Tensor) -> Tensor:
        return torch.tanh(weight)


def dense_pair() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


@seeded
def tanh_parametrized() -> Example:
    """x [1, 6] -> [1, 3]."""
    model = dense_pair()
    parametrize.register_parametrization(model[0], "weight", Tanh())
    parametrize.register_parametrization(model[2], "weight", Tanh())
    return model, (torch.randn(1, 6),)


@seeded
def weight_norm() -> Example:
    """g * v / |v| by torch's own parametrization; x [1, 6] -> [1, 3]."""
    model = dense_pair()
    parametrizations.weight_norm(model[0])
    parametrizations.weight_norm(model[2])
    return model, (torch.randn(1, 6),)
