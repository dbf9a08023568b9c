"""Ordinary layers, written out unit by unit beside the torch modules they stand for."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .scalar import Connection, ScalarGraph, Unit

Choose = Callable[[int, int], int]  # a whole number between two, both included
Units = NDArray[np.int_]  # unit numbers in the activation's shape, batch aside

ACTIVATIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = {
    "relu": (torch.relu, True),
    "tanh": (torch.tanh, True),
    "sigmoid": (torch.sigmoid, False),
}


class Activation(nn.Module):
    """One of the three by name, as a module and unit by unit."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.function, self.zero_at_zero = ACTIVATIONS[name]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)

    def units(self, graph: ScalarGraph, tails: Units) -> Units:
        return each(tails, lambda tail: graph.function(tail, self.zero_at_zero))


def choose_activation(choose: Choose) -> Activation:
    return Activation(sorted(ACTIVATIONS)[choose(0, len(ACTIVATIONS) - 1)])


def each(tails: Units, make: Callable[[Unit], Unit]) -> Units:
    """One new unit for every unit, in the same shape."""
    return np.array([make(int(tail)) for tail in tails.flat], dtype=int).reshape(tails.shape)


def both(left: Units, right: Units, make: Callable[[Unit, Unit], Unit]) -> Units:
    """One new unit for every pair of units in the same place."""
    pairs = zip(left.flat, right.flat, strict=True)
    return np.array([make(int(a), int(b)) for a, b in pairs], dtype=int).reshape(left.shape)


def inputs(graph: ScalarGraph, *shape: int) -> Units:
    return np.array(graph.inputs(int(np.prod(shape))), dtype=int).reshape(shape)


def add(graph: ScalarGraph, left: Units, right: Units) -> Units:
    return both(left, right, lambda a, b: graph.wires([a, b]))


def multiply(graph: ScalarGraph, left: Units, right: Units) -> Units:
    return both(left, right, graph.product)


def linear(graph: ScalarGraph, layer: nn.Linear, name: str, tails: Units) -> Units:
    """nn.Linear on a vector of units; connection o * in + i runs from unit i to unit o."""
    heads: list[Unit] = []
    for o in range(layer.out_features):
        terms: list[tuple[Unit, Connection | None]] = [
            (int(tail), (f"{name}.weight", o * layer.in_features + i))
            for i, tail in enumerate(tails)
        ]
        if layer.bias is not None:
            terms.append((graph.constant(), None))
        heads.append(graph.sum(terms))
    return np.array(heads, dtype=int)


def convolution(graph: ScalarGraph, layer: nn.Conv1d | nn.Conv2d, name: str, tails: Units) -> Units:
    """nn.Conv1d or nn.Conv2d on units [channels, *places]; padding is no unit."""
    shape = tuple(layer.weight.shape)  # [out, in / groups, *kernel]
    kernel = shape[2:]
    padding = tuple(int(p) for p in layer.padding)
    stride, dilation = layer.stride, layer.dilation
    places = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, p, d, k, s in zip(tails.shape[1:], padding, dilation, kernel, stride, strict=True)
    ]
    heads = np.empty((shape[0], *places), dtype=int)
    for out, *place in product(range(shape[0]), *map(range, places)):
        group = out // (shape[0] // layer.groups)
        terms: list[tuple[Unit, Connection | None]] = []
        for into, *tap in product(range(shape[1]), *map(range, kernel)):
            where = [
                q * s + t * d - p for q, s, t, d, p in _zip(place, stride, tap, dilation, padding)
            ]
            if all(0 <= w < size for w, size in zip(where, tails.shape[1:], strict=True)):
                index = int(np.ravel_multi_index((out, into, *tap), shape))
                tail = int(tails[(group * shape[1] + into, *where)])
                terms.append((tail, (f"{name}.weight", index)))
        if layer.bias is not None:
            terms.append((graph.constant(), None))
        heads[(out, *place)] = graph.sum(terms)
    return heads


def _zip(*rows: Sequence[int]) -> list[tuple[int, ...]]:
    return list(zip(*rows, strict=True))
