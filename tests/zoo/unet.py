"""A U-Net of four levels (Ronneberger et al., 2015): transposed convolutions, skips by cat."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .seeded import Example, seeded, settle


class Double(nn.Module):
    """Two 3x3 convolutions."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(fan_out)
        self.conv2 = nn.Conv2d(fan_out, fan_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(fan_out)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(x)))


class UNet(nn.Module):
    """Down four times, up four times; a class map of the picture's size."""

    def __init__(self, fan_in: int, width: int, classes: int) -> None:
        super().__init__()
        widths = [width << level for level in range(5)]
        self.down = nn.ModuleList(
            Double(a, b) for a, b in zip([fan_in, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(w, w // 2, 2, 2) for w in widths[:0:-1])
        self.join = nn.ModuleList(Double(w, w // 2) for w in widths[:0:-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level, down in enumerate(self.down):
            x = down(x if level == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, skips[-2::-1], strict=True):
            x = join(torch.cat([skip, up(x)], 1))
        return self.head(x)


@seeded
def unet(size: int = 16, width: int = 2, classes: int = 3) -> Example:
    """x [1, 3, size, size] -> [1, classes, size, size]."""
    return settle(UNet(3, width, classes)), (torch.randn(1, 3, size, size),)
