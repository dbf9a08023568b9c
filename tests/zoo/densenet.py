"""A DenseNet block and transition (Huang et al., 2016): every layer sees all before it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .seeded import Example, seeded, settle


class DenseLayer(nn.Module):
    """Norm, ReLU, 1x1, norm, ReLU, 3x3."""

    def __init__(self, fan_in: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(fan_in)
        self.conv1 = nn.Conv2d(fan_in, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        x = torch.cat(features, 1)
        return self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))


class DenseBlock(nn.Module):
    """Three layers, then a transition that halves the picture, then linear."""

    def __init__(self, fan_in: int, growth: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(fan_in + i * growth, growth) for i in range(3))
        channels = fan_in + 3 * growth
        self.norm = nn.BatchNorm2d(channels)
        self.transition = nn.Conv2d(channels, channels // 2, 1, bias=False)
        self.head = nn.Linear(channels // 2, classes)

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        x = F.avg_pool2d(self.transition(F.relu(self.norm(torch.cat(features, 1)))), 2)
        return self.head(x.mean((2, 3)))


@seeded
def densenet_block() -> Example:
    """x [1, 4, 8, 8] -> [1, 5]."""
    return settle(DenseBlock(4, 4, 5)), (torch.randn(1, 4, 8, 8),)
