"""Every path of a small GCN, one by one, by the definition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from trellis.skeleton import GCN

Use = tuple[str, tuple[int, ...]]  # a parameter's name, and the place of an entry


@dataclass(frozen=True)
class Path:
    """From input unit (joint, channel) to a class; ``uses`` are the connections on the way, each
    with the unit where it is used (a kernel serves many nodes, an attention many channels)."""

    joint: int
    channel: int
    label: int
    heads: tuple[int, ...]
    connections: tuple[Use, ...]
    places: tuple[tuple[int, ...], ...]
    weight: float


def paths(gcn: GCN) -> Iterator[Path]:
    """All paths whose product is not zero."""
    heads, summed = gcn.sizes["heads"], gcn.sizes["combine"] == "sum"
    filters, nodes = gcn.sizes["filters"], gcn.sizes["nodes"]
    for joint, channel in product(range(nodes), range(gcn.sizes["channels"])):
        for taken, node, place, used, where, weight in _through(gcn, 0, joint, channel):
            width = filters if summed else heads * filters
            for label in range(gcn.sizes["classes"]):
                entry = (label, node * width + place)
                w = abs(float(gcn.dense.weight[entry]))
                if w:
                    yield Path(
                        joint, channel, label, taken, (*used, ("dense.weight", entry)),
                        (*where, entry), weight * w,
                    )  # fmt: skip


def _through(
    gcn: GCN, number: int, node: int, channel: int
) -> Iterator[
    tuple[tuple[int, ...], int, int, tuple[Use, ...], tuple[tuple[int, ...], ...], float]
]:
    if number == gcn.sizes["blocks"]:
        yield (), node, channel, (), (), 1.0
        return
    block: Any = gcn.blocks[number]
    heads, filters = gcn.sizes["heads"], gcn.sizes["filters"]
    kernels = len(block.convolution)
    for head, to, out in product(range(heads), range(gcn.sizes["nodes"]), range(filters)):
        kernel = head if kernels > 1 else 0
        a = abs(float(block.attention[head, to, node]))
        if block.edges is not None:
            a *= float(block.edges[head, to, node])
        w = abs(float(block.convolution[kernel, channel, out]))
        if a * w == 0:
            continue
        place = out if gcn.sizes["combine"] == "sum" else head * filters + out
        for taken, last, end, used, where, weight in _through(gcn, number + 1, to, place):
            mine: tuple[Use, ...] = (
                (f"blocks.{number}.attention", (head, to, node)),
                (f"blocks.{number}.convolution", (kernel, channel, out)),
            )
            if block.convolution.shape[1] <= filters:  # attention first
                here = ((number, head, to, node, channel), (number, 0, head, to, channel, out))
            else:
                here = ((number, head, to, node, out), (number, 0, head, node, channel, out))
            yield (head, *taken), last, end, (*mine, *used), (*here, *where), a * w * weight
