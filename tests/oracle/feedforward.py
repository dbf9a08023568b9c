"""Random networks without gates: dense, convolutional, residual, concatenating."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .layers import Choose, add, choose_activation, convolution, inputs, linear
from .network import Network
from .scalar import ScalarGraph


def mlp(choose: Choose) -> Network:
    """One to four dense layers of one to four units."""
    bias = bool(choose(0, 1))
    widths = [choose(1, 4) for _ in range(choose(2, 5))]
    activation = choose_activation(choose)
    graph = ScalarGraph()
    units = inputs(graph, widths[0])
    layers: list[nn.Module] = []
    for index, (a, b) in enumerate(pairwise(widths)):
        if index:
            layers.append(activation)
            units = activation.units(graph, units)
        layers.append(layer := nn.Linear(a, b, bias=bias))
        units = linear(graph, layer, str(len(layers) - 1), units)
    graph.outputs = units.tolist()
    return Network("mlp", nn.Sequential(*layers), (torch.randn(1, widths[0]),), graph)


class Convolutional(nn.Module):
    """Convolutions, flatten, linear."""

    def __init__(self, convs: nn.ModuleList, activation: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.convs = convs
        self.activation = activation
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = self.activation(conv(x))
        return self.head(x.flatten(1))


def convolutional(choose: Choose) -> Network:
    """One or two convolutions, 1d or 2d, with stride, padding, dilation and groups."""
    bias = bool(choose(0, 1))
    dimensions = choose(1, 2)
    kind: Any = nn.Conv1d if dimensions == 1 else nn.Conv2d
    activation = choose_activation(choose)
    groups = choose(1, 2)
    channels = groups * choose(1, 2)
    sides = [choose(2, 4) for _ in range(dimensions)]
    graph = ScalarGraph()
    units = inputs(graph, channels, *sides)
    convs = nn.ModuleList()
    for index in range(choose(1, 2)):
        kernel, stride, padding, dilation = [], [], [], []
        for side in units.shape[1:]:
            padding.append(choose(0, 2))
            dilation.append(choose(1, 2))
            reach = (side + 2 * padding[-1] - 1) // dilation[-1] + 1  # the widest kernel that fits
            kernel.append(choose(1, min(3, reach)))
            stride.append(choose(1, 2))
        out = groups * choose(1, 2)
        conv = kind(units.shape[0], out, kernel, stride, padding, dilation, groups, bias)
        convs.append(conv)
        units = convolution(graph, conv, f"convs.{index}", units)
        units = activation.units(graph, units)
    head = nn.Linear(units.size, choose(1, 3), bias=bias)
    graph.outputs = linear(graph, head, "head", units.flatten()).tolist()
    model = Convolutional(convs, activation, head)
    return Network("convolutional", model, (torch.randn(1, channels, *sides),), graph)


class Residual(nn.Module):
    """x + down(activation(up(x))), again and again, then a head."""

    def __init__(self, width: int, hidden: int, blocks: int, classes: int, bias: bool) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(width, hidden, bias) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(hidden, width, bias) for _ in range(blocks))
        self.head = nn.Linear(width, classes, bias)
        self.activation: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        for up, down in zip(self.up, self.down, strict=True):
            x = x + down(self.activation(up(x)))
        return self.head(x)


def residual(choose: Choose) -> Network:
    """One to three blocks."""
    width, hidden, blocks = choose(1, 3), choose(1, 3), choose(1, 3)
    model = Residual(width, hidden, blocks, choose(1, 3), bool(choose(0, 1)))
    model.activation = activation = choose_activation(choose)
    graph = ScalarGraph()
    units = inputs(graph, width)
    for index, (up, down) in enumerate(zip(model.up, model.down, strict=True)):
        assert isinstance(up, nn.Linear) and isinstance(down, nn.Linear)
        inner = activation.units(graph, linear(graph, up, f"up.{index}", units))
        units = add(graph, units, linear(graph, down, f"down.{index}", inner))
    graph.outputs = linear(graph, model.head, "head", units).tolist()
    return Network("residual", model, (torch.randn(1, width),), graph)


class Concatenating(nn.Module):
    """Each layer reads everything before it."""

    def __init__(self, width: int, growth: int, layers: int, classes: int, bias: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(width + index * growth, growth, bias) for index in range(layers)
        )
        self.head = nn.Linear(width + layers * growth, classes, bias)
        self.activation: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, self.activation(layer(x))], dim=1)
        return self.head(x)


def concatenating(choose: Choose) -> Network:
    """One to three layers."""
    width, growth, layers = choose(1, 3), choose(1, 2), choose(1, 3)
    model = Concatenating(width, growth, layers, choose(1, 3), bool(choose(0, 1)))
    model.activation = activation = choose_activation(choose)
    graph = ScalarGraph()
    units = inputs(graph, width)
    for index, layer in enumerate(model.layers):
        assert isinstance(layer, nn.Linear)
        fresh = activation.units(graph, linear(graph, layer, f"layers.{index}", units))
        units = np.concatenate([units, fresh])
    graph.outputs = linear(graph, model.head, "head", units).tolist()
    return Network("concatenating", model, (torch.randn(1, width),), graph)
