"""|w| of a GCN, its largest layer by its kept connections alone.

At 99 % that layer keeps a hundredth of two million weights: whatever is done for each kept one is
done a hundred times as fast as for all. Attention and convolutions are a tenth of the network, and
stay whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..skeleton import GCN

Kept = Mapping[str, tuple[Tensor, Tensor]]  # places and values of each parameter


@dataclass(frozen=True, eq=False)
class Connections:
    """Weights from (node, head, filter) to a class: ``places`` count the entries of ``shape``,
    (classes, nodes, heads, filters), in row-major order; ``weight`` are above zero.

    >>> found = Connections(torch.tensor([3, 5]), torch.tensor([2.0, 4.0]).double(), (2, 1, 1, 3))
    >>> [part.tolist() for part in found.units]
    [[1, 1], [0, 0], [0, 0], [0, 2]]
    """

    places: Tensor
    weight: Tensor
    shape: tuple[int, int, int, int]

    @classmethod
    def of(cls, whole: Tensor) -> Connections:
        """(classes, nodes, heads, filters)"""
        classes, nodes, heads, filters = whole.shape
        places = whole.flatten().nonzero().flatten()
        return cls(places, whole.flatten()[places], (classes, nodes, heads, filters))

    @property
    def units(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Class, node, head and filter of each."""
        _, nodes, heads, filters = self.shape
        rest, f = self.places // filters, self.places % filters
        rest, k = rest // heads, rest % heads
        return rest // nodes, rest % nodes, k, f

    @property
    def classes(self) -> Tensor:
        return self.places // math.prod(self.shape[1:])

    def scaled(self, by_class: Tensor) -> Connections:
        """Every weight times what its class has; those that are nothing then are left out."""
        weight = self.weight * by_class[self.classes]
        left = weight > 0
        if bool(left.all()):
            return replace(self, weight=weight)
        return replace(self, places=self.places[left], weight=weight[left])

    def to_every_head(self, heads: int) -> Connections:
        """Where heads are added up, and what the sum is wanted for every head is wanted for."""
        classes, nodes, _, filters = self.shape
        to = self.places // filters * heads * filters + self.places % filters
        places = to[:, None] + filters * torch.arange(heads)
        weight = self.weight[:, None].expand(-1, heads)
        return Connections(places.flatten(), weight.flatten(), (classes, nodes, heads, filters))

    def whole(self) -> Tensor:
        found = torch.zeros(math.prod(self.shape), dtype=torch.float64)
        found[self.places] = self.weight
        return found.reshape(self.shape)


@dataclass(frozen=True, eq=False)
class Weights:
    """Of each block, ``attentions`` (heads, nodes, nodes) and ``convolutions`` (heads, channels,
    filters); ``dense`` has one head where heads are added up (``summed``)."""

    attentions: tuple[Tensor, ...]
    convolutions: tuple[Tensor, ...]
    dense: Connections
    summed: bool = False


def weights_of(model: GCN) -> Weights:
    """A network's, its masks applied.

    >>> found = weights_of(GCN(nodes=3, channels=6, classes=2, heads=2, filters=4))
    >>> found.dense.shape, len(found.dense.places)
    ((2, 3, 2, 4), 48)
    """
    heads, summed = model.sizes["heads"], model.sizes["combine"] == "sum"
    attentions, convolutions = [], []
    for block in model.blocks:
        given: Any = block
        attention = _magnitude(given.attention)
        attentions.append(attention if given.edges is None else attention * given.edges.double())
        convolutions.append(_magnitude(given.convolution).expand(heads, -1, -1))
    dense = model.dense.weight.detach()
    shape = (len(dense), model.sizes["nodes"], 1 if summed else heads, -1)
    found = Connections.of(dense.reshape(shape))
    last = _clean(found.places, found.weight, found.shape)
    return Weights(tuple(attentions), tuple(convolutions), last, summed)


def kept_weights(kept: Kept, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
    """Of the places and values that a run keeps of a network; ``shapes`` are its parameters'."""
    attentions, convolutions = [], []
    for number in range(len(shapes) // 2):
        attentions.append(_whole(kept, shapes, f"blocks.{number}.attention"))
        # A shared convolution serves every head.
        convolution = _whole(kept, shapes, f"blocks.{number}.convolution")
        convolutions.append(convolution.expand(len(attentions[0]), -1, -1))
    heads, nodes = attentions[0].shape[:2]
    classes, width = shapes["dense.weight"]
    places, values = kept["dense.weight"]
    last = _clean(places.long(), values, (classes, nodes, heads, width // (nodes * heads)))
    return Weights(tuple(attentions), tuple(convolutions), last)


def added_up(places: Tensor, weight: Tensor, size: int) -> Tensor:
    """(size,): what each place gets.

    >>> added_up(torch.tensor([1, 1, 0]), torch.tensor([2.0, 3.0, 4.0]).double(), 3)
    tensor([4., 5., 0.], dtype=torch.float64)
    """
    # Of nothing at all bincount makes whole numbers.
    return torch.bincount(places, weight, size).double()


def _whole(kept: Kept, shapes: Mapping[str, tuple[int, ...]], name: str) -> Tensor:
    places, values = kept[name]
    found = torch.zeros(math.prod(shapes[name]), dtype=torch.float64)
    found[places.long()] = _magnitude(values)
    return found.reshape(shapes[name])


def _clean(places: Tensor, values: Tensor, shape: tuple[int, int, int, int]) -> Connections:
    weight = _magnitude(values)
    left = weight > 0
    return Connections(places[left], weight[left], shape)


def _magnitude(weight: Tensor) -> Tensor:
    """|w|; a training that went astray leaves weights that are no numbers: these carry nothing."""
    found = weight.detach().double().abs()
    return found if found.sum().isfinite() else found.nan_to_num(0.0, 0.0, 0.0)
