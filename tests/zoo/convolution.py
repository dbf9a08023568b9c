"""Convolutions of every kind, pooling, and ways to make a picture larger."""

import torch
from torch import nn

from .seeded import Example, seeded


@seeded
def strided_convolution() -> Example:
    """Groups, dilation, stride, uneven kernels and paddings; x [1, 4, 9, 8] -> [1, 3]."""
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2),
        nn.LeakyReLU(0.1),
        nn.Conv2d(8, 8, (3, 1), padding=(2, 0), dilation=(2, 1), groups=4, bias=False),
        nn.ELU(),
        nn.Conv2d(8, 6, 2, stride=(1, 2), padding="valid"),
        nn.Hardswish(),
        nn.Flatten(),
        nn.Linear(6 * 4 * 2, 3),
    )
    return model, (torch.randn(1, 4, 9, 8),)


@seeded
def convolution1d() -> Example:
    """x [1, 3, 12] -> [1, 4]."""
    model = nn.Sequential(
        nn.Conv1d(3, 6, 3, padding="same", dilation=2),
        nn.GELU(),
        nn.MaxPool1d(2),
        nn.Conv1d(6, 6, 3, stride=2, padding=1, groups=3, padding_mode="circular"),
        nn.Softplus(),
        nn.ConvTranspose1d(6, 4, 3, stride=2, padding=1, output_padding=1),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
    )
    return model, (torch.randn(1, 3, 12),)


@seeded
def convolution3d() -> Example:
    """x [1, 2, 4, 4, 4] -> [1, 3]."""
    model = nn.Sequential(
        nn.Conv3d(2, 4, 3, padding=1),
        nn.BatchNorm3d(4),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(4, 4, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4, 3),
    )
    return model, (torch.randn(1, 2, 4, 4, 4),)


@seeded
def transposed_convolution() -> Example:
    """Stride, groups, output padding, dilation; x [1, 4, 3, 3] -> [1, 2, 9, 9]."""
    model = nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 2, 2, dilation=3, bias=False),
    )
    return model, (torch.randn(1, 4, 3, 3),)


@seeded
def pooling() -> Example:
    """Average, max and adaptive, with overlap and padding; x [1, 2, 16, 16] -> [1, 3]."""
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"),
        nn.AvgPool2d(3, stride=2, padding=1),
        nn.Conv2d(4, 4, 3),
        nn.MaxPool2d(3, stride=1, padding=1),
        nn.Conv2d(4, 4, 1),
        nn.AdaptiveMaxPool2d((3, 4)),
        nn.Conv2d(4, 4, 1),
        nn.AdaptiveAvgPool2d((2, 3)),
        nn.Flatten(),
        nn.Linear(24, 3),
    )
    return model, (torch.randn(1, 2, 16, 16),)


@seeded
def upsampling() -> Example:
    """Nearest, bilinear, pixel shuffle; x [1, 2, 3, 3] -> [1, 1, 20, 20]."""
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.Upsample(scale_factor=2, mode="nearest"),
        nn.Conv2d(4, 8, 3, padding=1),
        nn.ReLU(),
        nn.PixelShuffle(2),
        nn.Conv2d(2, 2, 3),
        nn.Upsample(size=(20, 20), mode="bilinear", align_corners=False),
        nn.Conv2d(2, 1, 1),
    )
    return model, (torch.randn(1, 2, 3, 3),)
