"""The surviving network as lines to draw: every connection, or bundles where there are too many.

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

from .messages import Messages

MOST = 5000  # lines that can be told apart, and drawn at once in a browser
_DECADES = 4  # flows from the strongest down to a ten-thousandth of it look different


def drawing(messages: Messages, branches: Sequence[int]) -> dict[str, Any]:
    """What the page draws. ``branches[j]`` is joint j's finger or limb: lines have its colour."""
    lines = int((messages.dense > 0).sum())
    for block in messages.blocks:
        lines += int((block.attention > 0).sum()) + int((block.convolution > 0).sum())
    if lines > MOST:
        return {"mode": "bundles", "bundles": _bundles(messages)}
    return {
        "mode": "paths",
        "filters": messages.blocks[-1].convolution.shape[2],
        "summed": messages.summed,
    } | _Lines(messages, branches).made()


class _Lines:
    """Every connection on a path, by the units it joins.

    ``attention`` k u v: joint v to head k, for joint u; ``convolutions`` k c f: channel c to
    filter f of head k; ``dense`` k f u o: filter f of head k at joint u to class o. Then its flow
    (0 to 99, by its logarithm), the branch that most of it comes from, and which joints and
    classes its paths join, as numbers of ``joint_sets`` and ``class_sets``.
    """

    def __init__(self, messages: Messages, branches: Sequence[int]) -> None:
        self.messages = messages
        joints, count = len(branches), max(branches) + 1
        self.branch = torch.zeros(count, joints, dtype=torch.float64)
        self.branch[torch.tensor(branches), torch.arange(joints)] = 1
        self.joint_sets: dict[str, int] = {}
        self.class_sets: dict[str, int] = {}

    def made(self) -> dict[str, Any]:
        found = {
            "attention": self._attention(),
            "convolutions": [self._convolution(b) for b in range(len(self.messages.blocks))],
            "dense": self._dense(),
        }
        return found | {"joint_sets": list(self.joint_sets), "class_sets": list(self.class_sets)}

    def _attention(self) -> list[list[int]]:
        """Of the first block: later ones join joints that the picture no longer tells apart."""
        block = self.messages.blocks[0]
        back = block.back_to_mixed(self.messages.outgoing(0)).sum(3)  # classes, heads, nodes
        k, u, v = block.attention.nonzero(as_tuple=True)
        to_class = block.attention[k, u, v] * back[:, k, u]  # classes, lines
        from_joint = torch.zeros(len(self.branch[0]), len(k), dtype=torch.float64)
        from_joint[v, torch.arange(len(k))] = to_class.sum(0)
        return self._rows((k, u, v), from_joint, to_class)

    def _convolution(self, number: int) -> list[list[int]]:
        block, out = self.messages.blocks[number], self.messages.outgoing(number)
        mixed = block.mixed(self.messages.forward[number])  # joints, heads, nodes, channels
        k, c, f = block.convolution.nonzero(as_tuple=True)
        weight = block.convolution[k, c, f]
        before, behind = mixed[:, k, :, c], out[:, :, k, f]  # lines, joints, nodes; classes, nodes…
        from_joint = weight * torch.einsum("eju,ue->je", before, behind.sum(0))
        to_class = weight * torch.einsum("eu,oue->oe", before.sum(1), behind)
        return self._rows((k, c, f), from_joint, to_class)

    def _dense(self) -> list[list[int]]:
        messages = self.messages
        sums = messages.sums[:, None, None, None]
        dense = torch.where(sums > 0, messages.dense / sums, 0)
        forward = messages.forward[-1]
        if messages.summed:  # the same filter whichever head: drawn once
            dense, forward = dense[:, :, :1], forward[:, :, None]
        else:
            forward = forward.unflatten(2, tuple(messages.dense.shape[2:]))
        o, u, k, f = dense.nonzero(as_tuple=True)
        from_joint = forward[:, u, k, f] * dense[o, u, k, f]
        to_class = torch.zeros(len(dense), len(o), dtype=torch.float64)
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
            (self.branch @ from_joint).argmax(0),
            _numbers(self.joint_sets, from_joint > 0),
            _numbers(self.class_sets, to_class > 0),
        ]
        rows: list[list[int]] = torch.stack(columns, 1)[live].tolist()
        return rows


def _numbers(known: dict[str, int], members: Tensor) -> Tensor:
    """(any, lines) booleans -> (lines,): the number of each line's set, as hexadecimal digits.

    >>> known: dict[str, int] = {}
    >>> _numbers(known, torch.tensor([[True, False, True], [False, True, False]])), list(known)
    (tensor([0, 1, 0]), ['1', '2'])
    """
    distinct, which = members.T.unique(dim=0, return_inverse=True)
    texts = [
        format(sum(1 << i for i, member in enumerate(row) if member), "x")
        for row in distinct.tolist()
    ]
    order = torch.tensor([0] * len(texts))
    for line in which.tolist():  # numbered as they are met, so that the first set is set 0
        order[line] = known.setdefault(texts[line], len(known))
    return order[which]


def _bundles(messages: Messages) -> dict[str, Any]:
    """Flows by class, joint and head of the first block, and how many filters each head has."""
    block, out = messages.blocks[0], messages.outgoing(0)
    mixed = block.mixed(messages.forward[0])
    flow = torch.einsum("jkuc,okuc->ojk", mixed, block.back_to_mixed(out))
    reached = torch.einsum("kuc,kcf->ukf", mixed.sum(0), block.convolution) > 0
    filters = (reached & (out.sum(0) > 0)).any(0).sum(1)
    return quantised(flow) | {"filters": filters.tolist()}


def quantised(values: Tensor) -> dict[str, Any]:
    """Numbers from 0 up as a byte each, by their square root: small ones keep a place.

    >>> found = quantised(torch.tensor([0.0, 0.25, 1.0]))
    >>> found["shape"], found["largest"], list(base64.b64decode(found["bytes"]))
    ([3], 1.0, [0, 128, 255])
    """
    largest = float(values.max()) if values.numel() else 0.0
    scaled = (values.clamp(min=0) / (largest or 1.0)).sqrt() * 255
    # What is there at all must not look as if it were not.
    whole = torch.where(values > 0, scaled.round().clamp(min=1), 0).to(torch.uint8)
    return {
        "shape": list(values.shape),
        "largest": 0.0 if not math.isfinite(largest) else float(f"{largest:.6g}"),
        "bytes": base64.b64encode(whole.numpy().tobytes()).decode("ascii"),
    }
