"""PyG's GCNConv and GATConv, the edges an input or a buffer."""

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .seeded import Example, seeded

EDGES = ((0, 1, 1, 2, 2, 3, 3, 4, 4, 0), (1, 0, 2, 1, 3, 2, 4, 3, 0, 4))  # a ring of five


class Convolutions(nn.Module):
    """Two graph convolutions."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.conv1 = first
        self.conv2 = second

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(F.relu(self.conv1(x, edge_index)), edge_index)


class FixedEdges(nn.Module):
    """The same, on a graph that belongs to the model."""

    edge_index: Tensor

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("edge_index", torch.tensor(EDGES))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x, self.edge_index)


def layers() -> Any:
    """torch_geometric.nn, which compiles some of its classes on import with `torch.jit.script`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch_geometric.nn  # type: ignore[import-untyped]
    return torch_geometric.nn


def on_ring(model: nn.Module, buffer: bool) -> Example:
    x = torch.randn(5, 4)
    return (FixedEdges(model), (x,)) if buffer else (model, (x, torch.tensor(EDGES)))


@seeded
def gcn_conv(buffer: bool = False) -> Example:
    """x [5, 4], edge_index [2, 10] -> [5, 3]."""
    convolution = layers().GCNConv
    return on_ring(Convolutions(convolution(4, 6), convolution(6, 3)), buffer)


@seeded
def gat_conv(buffer: bool = False) -> Example:
    """x [5, 4], edge_index [2, 10] -> [5, 3]."""
    convolution = layers().GATConv
    return on_ring(Convolutions(convolution(4, 3, heads=2), convolution(6, 3)), buffer)
