"""Multiplications of a pruned GCN, and which joints and moments each class depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..skeleton.data.representation import COORDINATES, cosines
from .gcn_paths import BlockMessages, Messages

# The number of multiplications for one recording: uses of connections on paths.


def multiplications(messages: Messages) -> int:
    """Count the uses of connections on paths from an input to a class.

    Attention comes before or after the convolution, wherever the signal is smaller, as in the
    network.

    >>> from trellis.skeleton import GCN
    >>> from trellis.report.gcn_paths import messages_of
    >>> from trellis.report.gcn_paths import weights_of
    >>> found = messages_of(weights_of(GCN(nodes=2, channels=3, classes=2, heads=2, filters=4)))
    >>> multiplications(found) == 2 * 2 * 2 * 3 + 2 * 2 * 3 * 4 + 2 * 2 * 2 * 4
    True
    """
    count = 0
    for block in messages.blocks:
        before, behind = block.seen.double(), block.behind.double()
        channels, filters = block.convolution.shape[1:]
        count += (_mixed_first if channels <= filters else _convolved_first)(block, before, behind)
    arrived = messages.total.flatten() > 0
    return count + int(arrived[messages.dense.places % len(arrived)].sum())


def dense_multiplications(sizes: Mapping[str, Any]) -> int:
    """Count the multiplications of an unpruned GCN of these sizes.

    >>> sizes = {"nodes": 21, "channels": 96, "classes": 45, "heads": 16, "filters": 128}
    >>> dense_multiplications(sizes | {"blocks": 1})
    6741504
    """
    nodes, heads, filters = sizes["nodes"], sizes["heads"], sizes["filters"]
    channels, summed = sizes["channels"], sizes.get("combine") == "sum"
    count = 0
    for _ in range(sizes["blocks"]):
        count += heads * nodes * (nodes * min(channels, filters) + channels * filters)
        channels = filters if summed else heads * filters
    return int(count + nodes * channels * sizes["classes"])


def _mixed_first(block: BlockMessages, before: Tensor, behind: Tensor) -> int:
    attention, convolution = _positive(block.attention), _positive(block.convolution)
    needed = _positive(_einsum("ukf,kcf->kuc", behind, convolution))
    reached = _positive(_einsum("kuv,vc->kuc", attention, before))
    mixing = _einsum("kuv,vc,kuc->", attention, before, needed)
    convolving = _einsum("kuc,kcf,ukf->", reached, convolution, behind)
    return int(mixing + convolving)


def _convolved_first(block: BlockMessages, before: Tensor, behind: Tensor) -> int:
    attention, convolution = _positive(block.attention), _positive(block.convolution)
    needed = _positive(_einsum("ukf,kuv->kvf", behind, attention))
    reached = _positive(_einsum("vc,kcf->kvf", before, convolution))
    convolving = _einsum("vc,kcf,kvf->", before, convolution, needed)
    mixing = _einsum("kvf,kuv,ukf->", reached, attention, behind)
    return int(convolving + mixing)


def _positive(values: Tensor) -> Tensor:
    return (values > 0).double()


def _einsum(pattern: str, *operands: Tensor) -> Tensor:
    result: Tensor = torch.einsum(pattern, *operands)
    return result


def moments_of(chunks: int, kinds: Sequence[str] = COORDINATES) -> list[int]:
    """Return the chunk (or cosine coefficient) of each three channels of a joint, in order.

    A velocity belongs to the later of its two chunks.

    >>> moments_of(3), moments_of(3, ("coordinates", "velocity"))
    ([0, 1, 2], [0, 1, 2, 1, 2])
    """
    return [chunk for kind in kinds for chunk in range(kind == "velocity", chunks)]


def by_joint(messages: Messages) -> Tensor:
    """Return (classes, joints): the share of a class's paths that begin at a joint.

    Shares are of the summed path products, and those of a class add up to one, or to zero if no
    path reaches it.

    >>> from trellis.skeleton import GCN
    >>> from trellis.report.gcn_paths import messages_of
    >>> from trellis.report.gcn_paths import weights_of
    >>> found = messages_of(weights_of(GCN(nodes=5, channels=12, classes=2, heads=2, filters=3)))
    >>> by_joint(found).shape, bool(torch.allclose(by_joint(found).sum(1), torch.ones(2).double()))
    (torch.Size([2, 5]), True)
    >>> by_moment(found, moments_of(4)).shape
    torch.Size([2, 4])
    """
    return messages.first.flow.sum(2)


def by_moment(messages: Messages, moments: Sequence[int]) -> Tensor:
    """Return (classes, moments): the share that begins at a moment. ``moments`` gives the chunk,
    or the cosine coefficient, of each three channels."""
    channels = messages.first.by_channel
    by_three = channels.reshape(len(channels), len(moments), 3).sum(2)
    found = torch.zeros(len(channels), max(moments) + 1, dtype=channels.dtype)
    return found.index_add(1, torch.tensor(moments), by_three)


def over_chunks(waves: Tensor) -> Tensor:
    """Convert shares by cosine coefficient to shares by chunk, (…, chunks), of the same sum.

    The share of coefficient k is spread over the chunks m by C[k, m]², where C is the orthonormal
    cosine transform. Its rows have length one, so these squares add up to one.

    >>> over_chunks(torch.tensor([[1.0, 0, 0], [0, 1, 0]])).mul(6).round(decimals=4)
    tensor([[2., 2., 2.],
            [3., 0., 3.]])
    """
    squares = torch.from_numpy(cosines(waves.shape[-1])).square()
    found: Tensor = waves @ squares.to(waves.dtype)
    return found
