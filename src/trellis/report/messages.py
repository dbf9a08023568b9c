"""Path products of a GCN: forward from each joint, backward from each class.

The network of |w| without its activations is linear, and what reaches a class from an input unit
is the sum of the products of all paths between them: the sum-times semiring. Joints and classes
are carried through apart, so that everything the report shows is a sum over these messages.

A block is walked through as convolution, then attention: f (A U W) either way. Where a class is
reached at all, its paths count as one together (weights of the dense layer are divided by their
sum): a class with large weights does not drown the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .block import Block
from .first import First
from .later import Later, onward
from .weights import Connections, Weights, added_up


@dataclass(frozen=True, eq=False)
class Messages:
    """``dense`` are the connections to classes that are reached, each class's paths adding up to
    one; ``sums`` (classes,) are what they add up to by themselves. ``summed``: heads are added up.
    """

    first: First
    later: tuple[Later, ...]
    dense: Connections
    sums: Tensor
    summed: bool

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.first, *self.later)

    @property
    def forward(self) -> Tensor:
        """(joints, nodes, heads of dense, filters): what gets to the dense layer from a joint."""
        found = self.blocks[-1].forward
        return found.sum(2, keepdim=True) if self.summed else found

    @property
    def total(self) -> Tensor:
        """(nodes, heads of dense, filters): the same, of all joints together."""
        found = self.blocks[-1].total
        return found.sum(1, keepdim=True) if self.summed else found


def messages_of(weights: Weights) -> Messages:
    """All messages of a network.

    >>> from ..skeleton import GCN
    >>> from .weights import weights_of
    >>> found = messages_of(weights_of(GCN(nodes=3, channels=6, classes=2, heads=2, filters=4)))
    >>> flow = found.first.flow
    >>> flow.shape, bool(torch.allclose(flow.sum((1, 2)), torch.ones(2).double()))
    (torch.Size([2, 3, 2]), True)
    """
    layers = list(zip(weights.attentions, weights.convolutions, strict=True))
    heads = len(layers[0][0])
    start = First(*layers[0], wanted=weights.dense)  # what is wanted of it is not known yet
    ways: list[tuple[Tensor, Tensor]] = []  # before a later block, and convolved
    total = start.total
    if layers[1:]:
        signal = start.forward
        for attention, convolution in layers[1:]:
            before = signal.sum(2) if weights.summed else signal.flatten(2)
            ways.append((before, torch.einsum("jvc,kcf->jvkf", before, convolution)))
            signal = onward(attention, ways[-1][1])
        total = signal.sum(0)

    arrived = (total.sum(1) if weights.summed else total).flatten()
    here = weights.dense
    sums = added_up(here.classes, here.weight * arrived[here.places % len(arrived)], here.shape[0])
    dense = here.scaled(torch.where(sums > 0, 1 / sums, 0))

    wanted = dense.to_every_head(heads) if weights.summed else dense
    later: list[Later] = []
    for layer, way in zip(reversed(layers[1:]), reversed(ways), strict=True):
        block = Later(*layer, *way, wanted=wanted.whole())
        later.insert(0, block)
        found = block.backward
        if weights.summed:  # every head gives the same
            found = found[:, :, None].expand(-1, -1, heads, -1)
        wanted = Connections.of(found.reshape(*found.shape[:2], heads, -1))
    return Messages(First(*layers[0], wanted), tuple(later), dense, sums, weights.summed)
