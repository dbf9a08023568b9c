"""Normalization: layer, group, instance, root mean square; a ConvNeXt block."""

import torch
from torch import Tensor, nn

from .seeded import Example, seeded, settle


@seeded
def layer_norm() -> Example:
    """x [1, 6] -> [1, 3]."""
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))
    return settle(model), (torch.randn(1, 6),)


@seeded
def rms_norm() -> Example:
    """x [1, 6] -> [1, 3]."""
    model = nn.Sequential(
        nn.Linear(6, 8, bias=False), nn.RMSNorm(8), nn.SiLU(), nn.Linear(8, 3, bias=False)
    )
    return settle(model), (torch.randn(1, 6),)


@seeded
def group_norm() -> Example:
    """x [1, 3, 5, 5] -> [1, 3]."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.GroupNorm(4, 8),
        nn.ReLU(),
        nn.Conv2d(8, 4, 3),
        nn.Flatten(),
        nn.Linear(36, 3),
    )
    return settle(model), (torch.randn(1, 3, 5, 5),)


@seeded
def instance_norm(statistics: bool = False) -> Example:
    """x [1, 3, 5, 5] -> [1, 3]; by its own statistics, or by remembered ones."""
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.InstanceNorm2d(6, affine=True, track_running_stats=statistics),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(150, 3),
    )
    return settle(model), (torch.randn(1, 3, 5, 5),)


class ConvNeXt(nn.Module):
    """Depthwise 7x7, layer norm over channels, a dense pair, layer scale, added to x."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up = nn.Linear(channels, 4 * channels)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)  # [b, h, w, channels]
        y = self.gamma * self.down(self.act(self.up(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


@seeded
def convnext_block() -> Example:
    """x [1, 4, 6, 6] -> [1, 4, 6, 6]."""
    return settle(ConvNeXt(4)), (torch.randn(1, 4, 6, 6),)


class FourierBlock(nn.Module):
    """FNet's: a Fourier transform over channels and positions mixes, a residual, a norm, layers."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(4, width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = self.norm(x + torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real)
        x = x + self.down(torch.relu(self.up(x)))
        return self.head(x[:, 0])


@seeded
def fourier_block() -> Example:
    """x [1, 3, 4] -> [1, 3]; sizes are odd, so that no cosine is zero."""
    return settle(FourierBlock(5, 8)), (torch.randn(1, 3, 4),)
