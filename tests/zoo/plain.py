"""The simplest networks: dense layers, LeNet, a text classifier."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from .seeded import Example, seeded


@seeded
def mlp(widths: tuple[int, ...] = (12, 16, 16, 5), bias: bool = True) -> Example:
    """Dense layers with ReLU between them; x [1, widths[0]] -> [1, widths[-1]]."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out, bias=bias), nn.ReLU()]
    return nn.Sequential(*layers[:-1]), (torch.randn(1, widths[0]),)


@seeded
def lenet(bias: bool = True, classes: int = 10) -> Example:
    """LeNet-5: convolution, pooling, flatten, linear; x [1, 1, 28, 28] -> [1, classes]."""
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2, bias=bias),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, bias=bias),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120, bias=bias),
        nn.ReLU(),
        nn.Linear(120, 84, bias=bias),
        nn.ReLU(),
        nn.Linear(84, classes, bias=bias),
    )
    return model, (torch.randn(1, 1, 28, 28),)


class TextClassifier(nn.Module):
    """Embedding, mean over the words, linear."""

    def __init__(self, vocabulary: int, width: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embedding(ids).mean(dim=1))


@seeded
def text_classifier() -> Example:
    """ids [1, 7] -> [1, 3]."""
    return TextClassifier(30, 8, 3), (torch.randint(0, 30, (1, 7)),)
