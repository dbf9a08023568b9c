"""No biases, no norms, nothing added that is constant; activations map 0 to 0.

What nothing reaches is nothing here, so that a dead connection can go without a trace.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .seeded import Example, seeded


def conv(fan_in: int, fan_out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(fan_in, fan_out, 3, stride, padding=1, bias=False)


class Residual(nn.Module):
    """Two blocks of two convolutions, the second with a strided shortcut; a linear head."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem = conv(2, width)
        self.first = nn.Sequential(conv(width, width), nn.ReLU(), conv(width, width))
        self.second = nn.Sequential(
            conv(width, 2 * width, 2), nn.ReLU(), conv(2 * width, 2 * width)
        )
        self.shortcut = nn.Conv2d(width, 2 * width, 1, 2, bias=False)
        self.head = nn.Linear(2 * width, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = F.relu(x + self.first(x))
        x = F.relu(self.shortcut(x) + self.second(x))
        return self.head(x.mean((2, 3)))


@seeded
def residual(width: int = 6, classes: int = 4) -> Example:
    """x [1, 2, 8, 8] -> [1, classes]."""
    return Residual(width, classes), (torch.randn(1, 2, 8, 8),)


class UNet(nn.Module):
    """Down twice, up twice, skips by cat; a class map of the picture's size."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(conv(a, b) for a, b in zip([2, *widths], widths, strict=False))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(w, w // 2, 2, 2, bias=False) for w in widths[:0:-1]
        )
        self.join = nn.ModuleList(conv(w, w // 2) for w in widths[:0:-1])
        self.head = nn.Conv2d(width, classes, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level, down in enumerate(self.down):
            x = F.relu(down(x if level == 0 else F.max_pool2d(x, 2)))
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, skips[-2::-1], strict=True):
            x = F.relu(join(torch.cat([skip, up(x)], 1)))
        return self.head(x)


@seeded
def unet(width: int = 4, classes: int = 3) -> Example:
    """x [1, 2, 8, 8] -> [1, classes, 8, 8]."""
    return UNet(width, classes), (torch.randn(1, 2, 8, 8),)


class Concatenating(nn.Module):
    """Each layer reads all that came before."""

    def __init__(self, width: int, layers: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(width * (i + 1), width, bias=False) for i in range(layers)
        )
        self.head = nn.Linear(width * (layers + 1), classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, torch.tanh(layer(x))], 1)
        return self.head(x)


@seeded
def concatenating(width: int = 12, layers: int = 3, classes: int = 4) -> Example:
    """x [1, width] -> [1, classes]."""
    return Concatenating(width, layers, classes), (torch.randn(1, width),)
