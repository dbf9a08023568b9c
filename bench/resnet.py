"""ResNet-50 for 224 x 224 images, on one page (He et al., arXiv 1512.03385)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


def convolution(tail: int, head: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the image's size up to its stride, then a batch norm."""
    return nn.Sequential(
        nn.Conv2d(tail, head, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(head),
    )


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 beside a shortcut: (batch, tail, h, w) -> (batch, 4 width, h/s, w/s)."""

    def __init__(self, tail: int, width: int, stride: int) -> None:
        super().__init__()
        self.reduce = convolution(tail, width, 1)
        self.middle = convolution(width, width, 3, stride)
        self.expand = convolution(width, 4 * width, 1)
        same = stride == 1 and tail == 4 * width
        self.shortcut = nn.Identity() if same else convolution(tail, 4 * width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.middle(F.relu(self.reduce(x))))
        return F.relu(self.expand(hidden) + self.shortcut(x))


class ResNet50(nn.Module):
    """25.5 M weights: (batch, 3, 224, 224) -> (batch, 1000)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = convolution(3, 64, 7, 2)
        blocks: list[nn.Module] = []
        tail = 64
        for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for index in range(depth):
                blocks.append(Bottleneck(tail, width, stride if index == 0 else 1))
                tail = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(tail, 1000)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.max_pool2d(F.relu(self.stem(x)), 3, 2, padding=1)
        hidden = self.blocks(hidden).mean((2, 3))
        logits: Tensor = self.classifier(hidden)
        return logits
