"""How many multiplications it takes to read a recording: uses of connections that lie on paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .block import Block
from .messages import Messages


def multiplications(messages: Messages) -> int:
    """A use counts if something reaches it and it leads to a class; all others can be left out.

    Attention comes before the convolution or behind it, wherever the signal is smaller: as the
    network itself computes.

    >>> from ..skeleton import GCN
    >>> from .messages import messages_of
    >>> from .weights import weights_of
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
    """Of a GCN of these sizes with nothing removed.

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


def _mixed_first(block: Block, before: Tensor, behind: Tensor) -> int:
    attention, convolution = _positive(block.attention), _positive(block.convolution)
    needed = _positive(_einsum("ukf,kcf->kuc", behind, convolution))
    reached = _positive(_einsum("kuv,vc->kuc", attention, before))
    mixing = _einsum("kuv,vc,kuc->", attention, before, needed)
    convolving = _einsum("kuc,kcf,ukf->", reached, convolution, behind)
    return int(mixing + convolving)


def _convolved_first(block: Block, before: Tensor, behind: Tensor) -> int:
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
