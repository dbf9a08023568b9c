"""Networks for 32 x 32 images: ResNet-8, -20 and -32, VGG-19, a small vision transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut: (batch, tail, h, w) -> (batch, head, h/s, w/s)."""

    def __init__(self, tail: int, head: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(tail, head, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(head)
        self.second = nn.Conv2d(head, head, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(head)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or tail != head:
            self.shortcut = nn.Sequential(
                nn.Conv2d(tail, head, 1, stride, bias=False), nn.BatchNorm2d(head)
            )

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(hidden)) + self.shortcut(x))


class ResNet(nn.Module):
    """The CIFAR form of He et al. (arXiv 1512.03385): (batch, 3, 32, 32) -> (batch, 10).

    Args:
        depth: 6 n + 2 layers; shortcuts that change the shape are convolutions.
        width: Factor of the usual 16, 32 and 64 channels.
    """

    def __init__(self, depth: int, width: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16 * width, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(16 * width)
        blocks: list[nn.Module] = []
        tail = 16 * width
        for head, stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
            for index in range((depth - 2) // 6):
                blocks.append(Block(tail, head, stride if index == 0 else 1))
                tail = head
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(tail, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.blocks(F.relu(self.stem_norm(self.stem(x))))
        logits: Tensor = self.classifier(hidden.mean((2, 3)))
        return logits


class VGG19(nn.Module):
    """Sixteen 3x3 convolutions with batch norm and one linear layer, 20 M weights."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        tail = 3
        for heads in ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4):
            for head in heads:
                layers += [
                    nn.Conv2d(tail, head, 3, padding=1, bias=False),
                    nn.BatchNorm2d(head),
                    nn.ReLU(),
                ]
                tail = head
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers[:-1])  # the last pool is the mean below
        self.classifier = nn.Linear(tail, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


class Attention(nn.Module):
    """Multi-head self-attention: (batch, tokens, width) -> the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        shaped = self.project(x).reshape(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = shaped.permute(2, 0, 3, 1, 4)  # each (batch, heads, tokens, size)
        mixed = F.scaled_dot_product_attention(query, key, value)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return result


class TransformerBlock(nn.Module):
    """Attention and a two-layer perceptron, each normalised before and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.second_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first_norm(x))
        hidden: Tensor = self.narrow(F.gelu(self.widen(self.second_norm(x))))
        return x + hidden


class VisionTransformer(nn.Module):
    """A small vision transformer without class token: (batch, 3, 32, 32) -> (batch, 10)."""

    def __init__(self, width: int = 192, depth: int = 6, heads: int = 6, patch: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.positions = nn.Parameter(torch.randn(1, (32 // patch) ** 2, width) * 0.02)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        logits: Tensor = self.classifier(self.norm(self.blocks(tokens)).mean(1))
        return logits


NETWORKS = ("resnet8", "resnet20", "resnet32x2", "vgg19", "vit")


def network(name: str) -> nn.Module:
    """Make an untrained network by name; weights come from torch's global generator."""
    if name == "resnet8":
        model: nn.Module = ResNet(8)
    elif name == "resnet20":
        model = ResNet(20)
    elif name == "resnet32x2":
        model = ResNet(32, width=2)
    elif name == "vgg19":
        model = VGG19()
    elif name == "vit":
        return VisionTransformer()
    else:
        raise ValueError(f"unknown network {name!r}; known: {', '.join(NETWORKS)}")
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model
