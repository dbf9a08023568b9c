"""Path products of a GCN: forward from each joint, backward from each class.

The network of |w| without its activations is linear, and what reaches a class from an input unit
is the sum of the products of all paths between them: the sum-times semiring. Joints and classes
are carried through apart, so that everything the report shows is a sum over these messages.

A block is walked through as convolution, then attention: f (A U W) either way. Where a class is
reached at all, its paths count as one together (``backward`` is divided by their sum): a class with
large weights does not drown the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..skeleton import GCN


@dataclass(frozen=True, eq=False)
class Block:
    """|w| of a block, attention (heads, nodes, nodes) and convolution (heads, channels, filters),
    and the messages around it.

    ``before`` (joints, nodes, channels)
        the paths from a joint up to here;
    ``convolved`` (joints, nodes, heads, filters)
        those, through the convolution; their node is still the one they come from;
    ``wanted`` (classes, nodes, heads, filters)
        the paths to a class from the block's end;
    ``carried`` (classes, nodes, heads, filters)
        those and the attention; their node is the one they come from.
    """

    attention: Tensor
    convolution: Tensor
    before: Tensor
    convolved: Tensor
    wanted: Tensor
    carried: Tensor


@dataclass(frozen=True, eq=False)
class Messages:
    """``dense`` is |w| as (classes, nodes, heads, filters), the paths of a class adding up to one;
    ``sums`` are what they add up to by themselves. ``forward`` (joints, nodes, width) stands behind
    all blocks, ``backward`` (classes, nodes, channels) before them. ``summed``: heads are added up,
    and dense has one for all.
    """

    blocks: tuple[Block, ...]
    dense: Tensor
    forward: Tensor
    backward: Tensor
    sums: Tensor
    summed: bool


def messages_of(model: GCN) -> Messages:
    """All messages of a network, its masks applied.

    >>> gcn = GCN(nodes=3, channels=6, classes=2, heads=2, filters=4)
    >>> found = messages_of(gcn)
    >>> tuple(found.forward.shape), tuple(found.backward.shape)
    ((3, 3, 8), (2, 3, 6))
    >>> bool(torch.allclose(found.backward.sum((1, 2)), torch.ones(2).double()))
    True
    """
    nodes, classes, heads = (model.sizes[name] for name in ("nodes", "classes", "heads"))
    summed = model.sizes["combine"] == "sum"
    weights = [_weights(block, heads) for block in model.blocks]

    signal = torch.eye(nodes, dtype=torch.float64)[:, :, None].expand(
        -1, -1, weights[0][1].shape[1]
    )
    ways = []
    for number, (attention, convolution) in enumerate(weights):
        before = signal
        if number == 0:  # all of a joint's channels begin there, one path each
            convolved = before[:, :, 0, None, None] * convolution.sum(1)
        else:
            convolved = torch.einsum("jvc,kcf->jvkf", before, convolution)
        signal = torch.einsum("kuv,jvkf->jukf", attention, convolved)
        signal = signal.sum(2) if summed else signal.flatten(2)
        ways.append((attention, convolution, before, convolved))
    forward = signal

    dense = _magnitude(model.dense.weight)
    sums = dense @ forward.sum(0).flatten()
    dense *= torch.where(sums > 0, 1 / sums, 0)[:, None]
    signal = dense.reshape(classes, nodes, -1)
    blocks: list[Block] = []
    for attention, convolution, before, convolved in reversed(ways):
        if summed:  # every head gives the same
            wanted = signal[:, :, None].expand(-1, -1, heads, -1)
        else:
            wanted = signal.unflatten(2, (heads, -1))
        carried = torch.einsum("kuv,oukf->ovkf", attention, wanted)
        signal = torch.einsum("ovkf,kcf->ovc", carried, convolution)
        blocks.insert(0, Block(attention, convolution, before, convolved, wanted, carried))
    by_head = dense.reshape(classes, nodes, 1 if summed else heads, -1)
    return Messages(tuple(blocks), by_head, forward, signal, sums, summed)


def _weights(block: Any, heads: int) -> tuple[Tensor, Tensor]:
    attention = _magnitude(block.attention)
    if block.edges is not None:
        attention = attention * block.edges.double()
    # A shared convolution serves every head.
    return attention, _magnitude(block.convolution).expand(heads, -1, -1)


def _magnitude(weight: Tensor) -> Tensor:
    """|w|; a training that went astray leaves weights that are no numbers: these carry nothing."""
    found = weight.detach().double().abs_() if weight.dtype != torch.float64 else (
        weight.detach().abs())  # fmt: skip
    return found if found.sum().isfinite() else found.nan_to_num(0.0, 0.0, 0.0)
