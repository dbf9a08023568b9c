"""Small networks of devices: MLPerf Tiny's four, a temporal convolution and a U-Net."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn


def _conv(into: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(into, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU())


class Residual(nn.Module):
    """Two convolutions beside their input or, where sizes differ, a projection of it."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = _conv(into, out, 3, stride)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(out)
        self.beside = nn.Conv2d(into, out, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.second(self.first(x))) + self.beside(x))


def resnet8() -> nn.Module:
    """Image classification on CIFAR-10: 77,360 weights."""
    blocks = [Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2)]
    end = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return nn.Sequential(_conv(3, 16, 3), *blocks, *end)


def _separable(into: int, out: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(_conv(into, into, 3, stride, groups=into), _conv(into, out, 1))


def ds_cnn() -> nn.Module:
    """Keyword spotting."""
    first = nn.Sequential(
        nn.Conv2d(1, 64, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(64), nn.ReLU()
    )
    body = [_separable(64, 64) for _ in range(4)]
    return nn.Sequential(first, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))


def mobilenet() -> nn.Module:
    """Visual wake words: MobileNetV1, a quarter as wide."""
    shape = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2)]
    layers, into = [_conv(3, 8, 3, 2)], 8
    for out, stride in [*shape, (256, 1)]:
        layers.append(_separable(into, out, stride))
        into = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 2))


def autoencoder() -> nn.Module:
    """Anomaly detection: fully connected."""
    sizes = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640]
    layers: list[nn.Module] = []
    for into, out in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(into, out), nn.BatchNorm1d(out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(128, 640))


class Causal(nn.Module):
    """A dilated convolution that sees the past alone, beside its input."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.past = 2 * dilation
        self.conv = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.conv(nn.functional.pad(x, (self.past, 0)))))


def tcn() -> nn.Module:
    """Six channels of a motion sensor, 128 moments."""
    body = [Causal(32, 2**i) for i in range(4)]
    end = (nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 6))
    return nn.Sequential(nn.Conv1d(6, 32, 1), *body, *end)


class UNet(nn.Module):
    """Segmentation of 32 by 32, two levels."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = _conv(1, 8, 3), _conv(8, 16, 3), _conv(16, 32, 3)
        self.up_two = nn.ConvTranspose2d(32, 16, 2, 2)
        self.up_one = nn.ConvTranspose2d(16, 8, 2, 2)
        self.back_two, self.back_one = _conv(32, 16, 3), _conv(16, 8, 3)
        self.last = nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.one(x)
        two = self.two(nn.functional.max_pool2d(one, 2))
        three = self.three(nn.functional.max_pool2d(two, 2))
        two = self.back_two(torch.cat([two, self.up_two(three)], 1))
        made: Tensor = self.last(self.back_one(torch.cat([one, self.up_one(two)], 1)))
        return made


TINY: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet8": (resnet8, (3, 32, 32)),
    "ds_cnn": (ds_cnn, (1, 49, 10)),
    "mobilenet": (mobilenet, (3, 96, 96)),
    "autoencoder": (autoencoder, (640,)),
    "tcn": (tcn, (6, 128)),
    "unet": (UNet, (1, 32, 32)),
}


def tiny(name: str, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """Return a network at random weights, with norms that have seen something, and an example."""
    torch.manual_seed(seed)
    make, shape = TINY[name]
    model = make().eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                assert module.running_mean is not None and module.running_var is not None
                module.running_mean.normal_(0.0, 0.1)
                module.running_var.uniform_(0.5, 2.0)
    return model, torch.zeros(1, *shape)
