"""The surviving network as lines to draw: every connection, or bundles if there are too many.

A flow is the part of the classes' paths that runs through a line. Every reached class counts one,
so the flows of a column add up to the number of reached classes.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..skeleton import Layout
from ..skeleton.data.dataset import branches
from ..skeleton.data.preparation import BASES
from .gcn_paths import (
    BlockMessages,
    Later,
    Messages,
    Weights,
    by_joint,
    by_moment,
    messages_of,
    multiplications,
    over_chunks,
)

# Bundles, for too many connections: what flows between joints, heads and classes.
#
# Of each block, ``flow`` (classes, joints, heads) is the part of a class's paths that come from a
# joint through a head, and ``filters`` how many of each head lie on a path. From the second block
# on there is also by which head of the block before they came: ``of_class`` (classes, heads
# before, heads) and ``of_joint`` (joints, heads before, heads).


def bundles(messages: Messages) -> list[dict[str, Any]]:
    """Return what flows through each block, quantised to bytes."""
    found: list[dict[str, Any]] = []
    last: BlockMessages = messages.first
    for block in messages.blocks:
        on_path = block.by_filter > 0  # heads, filters
        found.append({"flow": quantised(block.flow), "filters": on_path.sum(1).tolist()})
        if isinstance(block, Later):
            found[-1] |= _between(last, block, messages.summed)
        last = block
    return found


def _between(last: BlockMessages, block: Later, summed: bool) -> dict[str, Any]:
    """Return what flows from each head of the previous block to each head of this one."""
    before = last.forward  # joints, nodes, heads, filters
    heads = len(last.attention)
    if summed:  # every head before gives the same channels
        kernel = block.convolution[:, None].expand(-1, heads, -1, -1)  # k, h, g, f
    else:
        kernel = block.convolution.unflatten(1, (heads, -1))
    seen = torch.einsum("vhg,khgf->vhkf", before.sum(0), kernel)
    needed = torch.einsum("vkf,khgf->vkhg", block.carried.sum(0), kernel)
    return {
        "of_class": quantised(torch.einsum("ovkf,vhkf->ohk", block.carried, seen)),
        "of_joint": quantised(torch.einsum("jvhg,vkhg->jhk", before, needed)),
    }


def quantised(values: Tensor) -> dict[str, Any]:
    """Quantise non-negative numbers to bytes, by their square root, so that small ones survive.

    >>> found = quantised(torch.tensor([0.0, 0.25, 1.0]))
    >>> found["shape"], found["largest"], list(base64.b64decode(found["bytes"]))
    ([3], 1.0, [0, 128, 255])
    """
    largest = float(values.max()) if values.numel() else 0.0
    scaled = (values.clamp(min=0) / (largest or 1.0)).sqrt() * 255
    # A positive number must not become zero.
    whole = torch.where(values > 0, scaled.round().clamp(min=1), 0).to(torch.uint8)
    return {
        "shape": list(values.shape),
        "largest": 0.0 if not math.isfinite(largest) else float(f"{largest:.6g}"),
        "bytes": base64.b64encode(whole.numpy().tobytes()).decode("ascii"),
    }


MOST = 5000  # lines that can be told apart, and drawn at once in a browser
_DECADES = 4  # flows from the strongest down to a ten-thousandth of it look different


def drawing(messages: Messages, branches: Sequence[int]) -> dict[str, Any]:
    """Return what the page draws. ``branches[j]`` is joint j's finger or limb, for colours."""
    lines = len(messages.dense.places)
    for block in messages.blocks:
        lines += int(block.attention.count_nonzero()) + int(block.convolution.count_nonzero())
    if lines > MOST:
        return {"mode": "bundles", "blocks": bundles(messages)}
    return {
        "mode": "paths",
        "filters": messages.blocks[-1].convolution.shape[2],
        "summed": messages.summed,
    } | _Lines(messages, branches).made()


class _Lines:
    """Every connection on a path, by the units that it joins.

    ``attentions`` of each block, k u v: from joint v to joint u in head k; ``convolutions`` of each
    block, k c f: channel c to filter f of head k; ``dense`` k f u o: filter f of head k at joint u
    to class o. Then its flow (0 to 99, by its logarithm), the branch that marks it, and which
    joints and classes its paths join, as numbers of ``joint_sets`` and ``class_sets``.
    """

    def __init__(self, messages: Messages, branches: Sequence[int]) -> None:
        self.messages = messages
        joints, count = len(branches), max(branches) + 1
        self.branch = torch.zeros(count, joints, dtype=torch.float64)
        self.branch[torch.tensor(branches), torch.arange(joints)] = 1
        self.joint_sets: dict[str, int] = {}
        self.class_sets: dict[str, int] = {}

    def made(self) -> dict[str, Any]:
        blocks = self.messages.blocks
        found = {
            "attentions": [self._attention(block) for block in blocks],
            "convolutions": [self._convolution(block) for block in blocks],
            "dense": self._dense(),
        }
        return found | {"joint_sets": list(self.joint_sets), "class_sets": list(self.class_sets)}

    def _attention(self, block: BlockMessages) -> list[list[int]]:
        places = block.attention.nonzero(as_tuple=True)
        return self._rows(places, *block.of_attention(*places))

    def _convolution(self, block: BlockMessages) -> list[list[int]]:
        places = block.convolution.nonzero(as_tuple=True)
        return self._rows(places, *block.of_convolution(*places))

    def _dense(self) -> list[list[int]]:
        dense = self.messages.dense
        o, u, k, f = dense.units
        from_joint = self.messages.forward[:, u, k, f] * dense.weight
        to_class = torch.zeros(dense.shape[0], len(o), dtype=torch.float64)
        to_class[o, torch.arange(len(o))] = from_joint.sum(0)
        return self._rows((k, f, u, o), from_joint, to_class)

    def _rows(
        self, places: Sequence[Tensor], from_joint: Tensor, to_class: Tensor
    ) -> list[list[int]]:
        flow = from_joint.sum(0)
        live = flow > 0
        if not live.any():
            return []
        level = 1 + (flow / flow.max()).clamp(min=1e-300).log10() / _DECADES
        columns = [
            *places,
            (99 * level.clamp(0, 1)).round().long(),
            _marked(self.branch @ from_joint),
            _numbers(self.joint_sets, from_joint > 0),
            _numbers(self.class_sets, to_class > 0),
        ]
        rows: list[list[int]] = torch.stack(columns, 1)[live].tolist()
        return rows


def _marked(flows: Tensor) -> Tensor:
    """Return (lines,): the branch that dominates each line, from (branches, lines).

    What most of a line comes from would be one and the same almost everywhere, wherever a network
    listens to one finger most. Where lines do not differ, it is that.

    >>> _marked(torch.tensor([[6.0, 5, 7], [3, 4, 2], [1, 1, 1]]))
    tensor([0, 1, 0])
    """
    shares = flows / flows.sum(0).clamp(min=1e-300)
    usual = flows.sum(1) / flows.sum().clamp(min=1e-300)
    return (shares - usual[:, None] + 1e-6 * shares).argmax(0)


def _numbers(known: dict[str, int], members: Tensor) -> Tensor:
    """Encode the columns of (any, lines) booleans as hexadecimal numbers.

    >>> known: dict[str, int] = {}
    >>> _numbers(known, torch.tensor([[True, False, True], [False, True, False]])), list(known)
    (tensor([0, 1, 0]), ['1', '2'])
    """
    distinct, which = members.T.unique(dim=0, return_inverse=True)
    texts = [
        format(sum(1 << i for i, member in enumerate(row) if member), "x")
        for row in distinct.tolist()
    ]
    lines = which.tolist()
    met = dict.fromkeys(lines)  # numbered as they are met, so that the first set is set 0
    number = {line: known.setdefault(texts[line], len(known)) for line in met}
    return torch.tensor([number[line] for line in lines], dtype=torch.int64)


# One network as the page shows it: its lines, the shares of joints and moments, its cost.


FULL_SHARE = 10_000  # shares are integers, parts of this number


def shown_network(
    weights: Weights, layout: Layout, moments: Sequence[int], basis: str = BASES[0]
) -> dict[str, Any]:
    """``joints`` and ``chunks`` are the shares of each class, in parts that add up to `FULL_SHARE`;
    in the basis of cosines also ``waves``."""
    messages = messages_of(weights)
    in_time = by_moment(messages, moments)
    waves = basis == "cosines"
    return {
        "drawing": drawing(messages, branches(layout)),
        "joints": whole_parts(by_joint(messages)),
        "chunks": whole_parts(over_chunks(in_time) if waves else in_time),
        "waves": whole_parts(in_time) if waves else None,
        "multiplications": multiplications(messages),
    }


def whole_parts(values: Tensor) -> list[list[int]]:
    """Round rows that add up to one to integers that add up to `FULL_SHARE`.

    >>> import torch
    >>> whole_parts(torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.0, 0.0, 0.0]]))
    [[3334, 3333, 3333], [0, 0, 0]]
    """
    scaled = values.double() * FULL_SHARE
    whole = scaled.floor()
    left = (scaled.sum(1) - whole.sum(1)).round().long()
    ranked = (scaled - whole).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    result: list[list[int]] = (whole.long() + (ranked < left[:, None])).tolist()
    return result
