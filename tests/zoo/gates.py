"""Networks that multiply signals: squeeze-and-excitation, gated linear units, highway."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .seeded import Example, seeded


class SqueezeExcite(nn.Module):
    """A convolution whose channels are scaled by a gate computed from their means."""

    def __init__(self, fan_in: int, channels: int, squeezed: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(fan_in, channels, 3, padding=1)
        self.squeeze = nn.Linear(channels, squeezed)
        self.excite = nn.Linear(squeezed, channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x))
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3))))))
        return self.head((x * gate[:, :, None, None]).mean((2, 3)))


@seeded
def squeeze_excite() -> Example:
    """x [1, 3, 6, 6] -> [1, 4]."""
    return SqueezeExcite(3, 8, 3, 4), (torch.randn(1, 3, 6, 6),)


@seeded
def glu() -> Example:
    """F.glu by its module; x [1, 6] -> [1, 3]."""
    return nn.Sequential(nn.Linear(6, 16), nn.GLU(), nn.Linear(8, 3)), (torch.randn(1, 6),)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)), added to x."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


@seeded
def swiglu() -> Example:
    """x [1, 4, 6] -> [1, 4, 6]."""
    return SwiGLU(6, 10), (torch.randn(1, 4, 6),)


class Product(nn.Module):
    """left(x) * right(x), with no function between: both must be reached."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(5, 6, bias=False)
        self.right = nn.Linear(5, 6, bias=False)
        self.head = nn.Linear(6, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.left(x) * self.right(x))


@seeded
def product() -> Example:
    """x [1, 5] -> [1, 3]."""
    return Product(), (torch.randn(1, 5),)


class Highway(nn.Module):
    """t * h + (1 - t) * x, twice (Srivastava et al., 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.plain = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for transform, plain in zip(self.transform, self.plain, strict=True):
            t = torch.sigmoid(transform(x))
            x = t * F.relu(plain(x)) + (1 - t) * x
        return x


@seeded
def highway() -> Example:
    """x [1, 6] -> [1, 6]."""
    return Highway(6), (torch.randn(1, 6),)
