"""Random networks that multiply signals: products, gated linear units, squeeze and excite."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import Choose, choose_activation, each, inputs, linear, multiply
from .network import Network
from .scalar import ScalarGraph


class Product(nn.Module):
    """left(x) * activation(right(x)), then a head."""

    def __init__(self, width: int, hidden: int, classes: int, bias: bool) -> None:
        super().__init__()
        self.left = nn.Linear(width, hidden, bias)
        self.right = nn.Linear(width, hidden, bias)
        self.head = nn.Linear(hidden, classes, bias)
        self.activation: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.left(x) * self.activation(self.right(x)))


def product(choose: Choose) -> Network:
    """Two dense layers, multiplied."""
    width, hidden, classes = choose(1, 3), choose(1, 3), choose(1, 2)
    model = Product(width, hidden, classes, bool(choose(0, 1)))
    model.activation = activation = choose_activation(choose)
    graph = ScalarGraph()
    x = inputs(graph, width)
    right = activation.units(graph, linear(graph, model.right, "right", x))
    gated = multiply(graph, linear(graph, model.left, "left", x), right)
    graph.outputs = linear(graph, model.head, "head", gated).tolist()
    return Network("product", model, (torch.randn(1, width),), graph)


class GLU(nn.Module):
    """Two gated linear units, one after the other."""

    def __init__(self, width: int, hidden: int, classes: int, bias: bool) -> None:
        super().__init__()
        self.first = nn.Linear(width, 2 * hidden, bias)
        self.second = nn.Linear(hidden, 2 * classes, bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.second(F.glu(self.first(x), dim=1)), dim=1)


def glu(choose: Choose) -> Network:
    """F.glu twice."""
    width, hidden, classes = choose(1, 3), choose(1, 3), choose(1, 2)
    model = GLU(width, hidden, classes, bool(choose(0, 1)))
    graph = ScalarGraph()
    units = inputs(graph, width)
    for name, layer in (("first", model.first), ("second", model.second)):
        value, gate = np.split(linear(graph, layer, name, units), 2)
        gate = each(gate, lambda tail: graph.function(tail, zero_at_zero=False))
        units = multiply(graph, value, gate)
    graph.outputs = units.tolist()
    return Network("glu", model, (torch.randn(1, width),), graph)


class SqueezeExcite(nn.Module):
    """Channels [c, places], each scaled by a gate that is computed from all their means."""

    def __init__(self, fan_in: int, channels: int, squeezed: int, classes: int, bias: bool) -> None:
        super().__init__()
        self.lift = nn.Linear(fan_in, channels, bias)
        self.squeeze = nn.Linear(channels, squeezed, bias)
        self.excite = nn.Linear(squeezed, channels, bias)
        self.head = nn.Linear(channels, classes, bias)
        self.activation: nn.Module
        self.gate: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.lift(x))  # [batch, places, channels]
        gate = self.gate(self.excite(self.activation(self.squeeze(x.mean(1)))))
        return self.head((x * gate[:, None, :]).sum(1))


def squeeze_excite(choose: Choose) -> Network:
    """One to two places; the gate is a sigmoid, or a function that is zero at zero."""
    fan_in, channels, squeezed = choose(1, 2), choose(1, 3), choose(1, 2)
    model = SqueezeExcite(fan_in, channels, squeezed, choose(1, 2), bool(choose(0, 1)))
    model.activation = activation = choose_activation(choose)
    model.gate = opening = choose_activation(choose)
    places = choose(1, 2)
    graph = ScalarGraph()
    x = inputs(graph, places, fan_in)
    lifted = np.array(
        [activation.units(graph, linear(graph, model.lift, "lift", x[p])) for p in range(places)]
    )
    means = np.array([graph.wires(lifted[:, c].tolist()) for c in range(channels)])
    inner = activation.units(graph, linear(graph, model.squeeze, "squeeze", means))
    gate = opening.units(graph, linear(graph, model.excite, "excite", inner))
    gated = np.array([multiply(graph, lifted[p], gate) for p in range(places)])
    sums = np.array([graph.wires(gated[:, c].tolist()) for c in range(channels)])
    graph.outputs = linear(graph, model.head, "head", sums).tolist()
    return Network("squeeze_excite", model, (torch.randn(1, places, fan_in),), graph)
