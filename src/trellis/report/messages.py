"""Path products of a GCN: forward from each joint, backward from each class.

The network of |w| without its activations is linear, and what reaches a class from an input unit
is the sum of the products of all paths between them: the sum-times semiring. Joints and classes
are carried through apart, so that everything the report shows is a sum over these messages:

``forward``
    (joints, nodes, channels) before each block and after the last: the paths from a joint.
``backward``
    (classes, nodes, channels), likewise: the paths to a class.

Where a class is reached at all, its paths count as one together (``backward`` is divided by their
sum): a class with large weights does not drown the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..skeleton import GCN


@dataclass(frozen=True, eq=False)
class Block:
    """|w| of a block: attention (heads, nodes, nodes), convolution (heads, channels, filters)."""

    attention: Tensor
    convolution: Tensor

    def mixed(self, signal: Tensor) -> Tensor:
        """(any, nodes, channels) -> (any, heads, nodes, channels): after the attention."""
        return torch.einsum("kuv,jvc->jkuc", self.attention, signal)

    def back_to_mixed(self, signal: Tensor) -> Tensor:
        """(any, nodes, heads, filters) -> (any, heads, nodes, channels)."""
        return torch.einsum("oukf,kcf->okuc", signal, self.convolution)


@dataclass(frozen=True, eq=False)
class Messages:
    """``dense`` is |w| as (classes, nodes, heads, filters); ``sums`` the paths to each class.

    ``forward[b]`` and ``backward[b]`` stand before block b, the last behind all blocks.
    """

    blocks: tuple[Block, ...]
    dense: Tensor
    forward: tuple[Tensor, ...]
    backward: tuple[Tensor, ...]
    sums: Tensor
    summed: bool

    def outgoing(self, block: int) -> Tensor:
        """Backward behind a block, told apart by head: (classes, nodes, heads, filters)."""
        return by_head(self.backward[block + 1], self.blocks[block], self.summed)


def messages_of(model: GCN) -> Messages:
    """All messages of a network, its masks applied.

    >>> gcn = GCN(nodes=3, channels=6, classes=2, heads=2, filters=4)
    >>> found = messages_of(gcn)
    >>> [tuple(m.shape) for m in found.forward], [tuple(m.shape) for m in found.backward]
    ([(3, 3, 6), (3, 3, 8)], [(2, 3, 6), (2, 3, 8)])
    >>> bool(torch.allclose(found.backward[0].sum((1, 2)), torch.ones(2).double()))
    True
    """
    blocks = tuple(_block(block, model.sizes["heads"]) for block in model.blocks)
    summed = model.sizes["combine"] == "sum"
    nodes, classes = model.sizes["nodes"], model.sizes["classes"]
    weight = _magnitude(model.dense.weight)

    signal = torch.eye(nodes, dtype=torch.float64)[:, :, None].expand(-1, -1, _channels(blocks[0]))
    forward = [signal]
    for block in blocks:
        signal = torch.einsum("jkuc,kcf->jukf", block.mixed(signal), block.convolution)
        signal = signal.sum(2) if summed else signal.flatten(2)
        forward.append(signal)

    signal = weight.reshape(classes, nodes, -1)
    backward = [signal]
    for block in reversed(blocks):
        mixed = block.back_to_mixed(by_head(signal, block, summed))
        signal = torch.einsum("okuc,kuv->ovc", mixed, block.attention)
        backward.insert(0, signal)
    sums = signal.sum((1, 2))
    scale = torch.where(sums > 0, 1 / sums, 0)[:, None, None]
    return Messages(
        blocks,
        by_head(weight.reshape(classes, nodes, -1), blocks[-1], summed),
        tuple(forward),
        tuple(message * scale for message in backward),
        sums,
        summed,
    )


def by_head(signal: Tensor, block: Block, summed: bool) -> Tensor:
    """(any, nodes, width) -> (any, nodes, heads, filters); summed heads all give the same."""
    heads, filters = len(block.attention), block.convolution.shape[2]
    if summed:
        return signal[:, :, None, :].expand(-1, -1, heads, -1)
    return signal.reshape(*signal.shape[:2], heads, filters)


def _block(block: Any, heads: int) -> Block:
    attention = _magnitude(block.attention)
    if block.edges is not None:
        attention = attention * block.edges.double()
    # A shared convolution serves every head.
    return Block(attention, _magnitude(block.convolution).expand(heads, -1, -1))


def _magnitude(weight: Tensor) -> Tensor:
    """|w|; a training that went astray leaves weights that are no numbers: these carry nothing."""
    return weight.detach().double().abs().nan_to_num(0.0, 0.0, 0.0)


def _channels(block: Block) -> int:
    return int(block.convolution.shape[1])
