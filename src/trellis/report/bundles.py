"""A network with too many connections to draw each: what flows between joints, heads and classes.

Of each block, ``flow`` (classes, joints, heads) is the part of a class's paths that come from a
joint through a head, and ``filters`` how many of each head lie on a path. From the second block on
there is also by which head of the block before they came: ``of_class`` (classes, heads before,
heads) and ``of_joint`` (joints, heads before, heads).
"""

from __future__ import annotations

import base64
import math
from typing import Any

import torch
from torch import Tensor

from .block import Block
from .later import Later
from .messages import Messages


def bundles(messages: Messages) -> list[dict[str, Any]]:
    """What flows through each block, its numbers as bytes."""
    found: list[dict[str, Any]] = []
    last: Block = messages.first
    for block in messages.blocks:
        on_path = block.by_filter > 0  # heads, filters
        found.append({"flow": quantised(block.flow), "filters": on_path.sum(1).tolist()})
        if isinstance(block, Later):
            found[-1] |= _between(last, block, messages.summed)
        last = block
    return found


def _between(last: Block, block: Later, summed: bool) -> dict[str, Any]:
    """What flows from each head h of the block before, by its filters g, to each of this one."""
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
