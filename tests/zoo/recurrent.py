"""Recurrent cells, unrolled by hand and fused."""

import torch
from torch import Tensor, nn

from .seeded import Example, seeded


class Tanh(nn.Module):
    """h = tanh(W x + U h) over the steps of x, then a dense layer."""

    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.W = nn.Linear(width, hidden, bias=False)
        self.U = nn.Linear(hidden, hidden, bias=False)
        self.head = nn.Linear(hidden, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], self.hidden)
        for step in range(x.shape[1]):
            h = torch.tanh(self.W(x[:, step]) + self.U(h))
        return self.head(h)


@seeded
def rnn_by_hand() -> Example:
    """x [1, 4, 5] -> [1, 3]."""
    return Tanh(5, 6, 3), (torch.randn(1, 4, 5),)


class Gated(nn.Module):
    """A GRU's cell, each gate its own pair of dense layers."""

    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.update = nn.Linear(width + hidden, hidden)
        self.reset = nn.Linear(width + hidden, hidden)
        self.fresh = nn.Linear(width + hidden, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(x.shape[0], self.hidden)
        for now in x.unbind(1):
            both = torch.cat([now, h], 1)
            z = torch.sigmoid(self.update(both))
            r = torch.sigmoid(self.reset(both))
            h = (1 - z) * h + z * torch.tanh(self.fresh(torch.cat([now, r * h], 1)))
        return self.head(h)


@seeded
def gru_by_hand() -> Example:
    """x [1, 4, 5] -> [1, 3]."""
    return Gated(5, 4, 3), (torch.randn(1, 4, 5),)


class Fused(nn.Module):
    """torch's own recurrent module, its last step into a dense layer."""

    def __init__(self, cell: nn.LSTM | nn.GRU | nn.RNN, classes: int) -> None:
        super().__init__()
        self.cell = cell
        directions = 2 if cell.bidirectional else 1
        self.head = nn.Linear(cell.hidden_size * directions, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


@seeded
def lstm(layers: int = 1, both: bool = False) -> Example:
    """x [1, 3, 4] -> [1, 3]."""
    cell = nn.LSTM(4, 5, layers, batch_first=True, bidirectional=both)
    return Fused(cell, 3), (torch.randn(1, 3, 4),)


@seeded
def gru(layers: int = 1, both: bool = False) -> Example:
    """x [1, 3, 4] -> [1, 3]."""
    cell = nn.GRU(4, 5, layers, batch_first=True, bidirectional=both)
    return Fused(cell, 3), (torch.randn(1, 3, 4),)


@seeded
def rnn(layers: int = 1, both: bool = False) -> Example:
    """x [1, 3, 4] -> [1, 3]."""
    cell = nn.RNN(4, 5, layers, batch_first=True, bidirectional=both)
    return Fused(cell, 3), (torch.randn(1, 3, 4),)
