"""Wires: chunk, split, stack, roll, flip, pad; several inputs and outputs."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .seeded import Example, seeded


class Wiring(nn.Module):
    """A layer before and after a tour of operations that only move units about."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 12)
        self.head = nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        a, b = F.relu(self.first(x)).chunk(2, dim=1)  # [b, 6] each
        c, d, e = torch.split(a, [1, 2, 3], dim=1)
        y = torch.stack([torch.cat([e, d, c], 1).roll(2, 1), b.flip(1)], 1)  # [b, 2, 6]
        y = F.pad(y, (1, 2, 0, 1))[:, :, :8]  # [b, 3, 8]
        y = y.transpose(1, 2).reshape(-1, 4, 6)[:, :, ::2]  # [b, 4, 3]
        y = torch.cat([y.flatten(1), a.repeat(1, 2)[:, 1:9]], 1)  # [b, 20]
        return self.head(y)


@seeded
def wiring() -> Example:
    """x [1, 6] -> [1, 3]."""
    return Wiring(), (torch.randn(1, 6),)


class Several(nn.Module):
    """Two inputs, two outputs, one trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 6)
        self.right = nn.Conv1d(2, 3, 2)
        self.trunk = nn.Linear(12, 5)
        self.head1 = nn.Linear(5, 2)
        self.head2 = nn.Linear(5, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([self.left(x), self.right(y).flatten(1)], 1)  # [b, 6 + 6]
        both = torch.tanh(self.trunk(torch.relu(both)))
        return self.head1(both), self.head2(both)


@seeded
def several() -> Example:
    """x [1, 4], y [1, 2, 3] -> [1, 2], [1, 4]."""
    return Several(), (torch.randn(1, 4), torch.randn(1, 2, 3))


class Residual(nn.Module):
    """x + f(x) three times, where f can be cut without cutting x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


@seeded
def residual() -> Example:
    """x [1, 5] -> [1, 5]."""
    return Residual(5), (torch.randn(1, 5),)
