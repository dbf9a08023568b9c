"""MobileNetV2 (Sandler et al., 2018): inverted residuals with depthwise convolutions."""

import torch
from torch import Tensor, nn

from .seeded import Example, seeded, settle


def convolution(fan_in: int, fan_out: int, kernel: int, stride: int, groups: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(fan_in, fan_out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(fan_out),
        nn.ReLU6(),
    )


class InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, narrow; added to its input where shapes allow."""

    def __init__(self, fan_in: int, fan_out: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = fan_in * expand
        self.residual = stride == 1 and fan_in == fan_out
        layers: list[nn.Module] = []
        if expand != 1:
            layers.append(convolution(fan_in, hidden, 1, 1, 1))
        layers.append(convolution(hidden, hidden, 3, stride, hidden))
        layers += [nn.Conv2d(hidden, fan_out, 1, bias=False), nn.BatchNorm2d(fan_out)]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNet(nn.Module):
    """Stem, inverted residuals, mean over positions, linear."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            convolution(3, 8, 3, 2, 1),
            InvertedResidual(8, 4, 1, 1),
            InvertedResidual(4, 6, 2, 6),
            InvertedResidual(6, 6, 1, 6),
            InvertedResidual(6, 8, 2, 6),
            InvertedResidual(8, 8, 1, 6),
            convolution(8, 32, 1, 1, 1),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(32, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean([2, 3]))


@seeded
def mobilenet_block() -> Example:
    """One inverted residual; x [1, 4, 8, 8] -> [1, 4, 8, 8]."""
    return settle(InvertedResidual(4, 4, 1, 6)), (torch.randn(1, 4, 8, 8),)


@seeded
def mobilenet() -> Example:
    """A small whole network; x [1, 3, 32, 32] -> [1, 10]."""
    return settle(MobileNet(10)), (torch.randn(1, 3, 32, 32),)
