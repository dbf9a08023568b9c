"""A model's tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from ...errors import TrellisError
from .fold import fold
from .form import Step, Tables
from .groups import Groups
from .layout import laid_out
from .live import keep_live, units_of
from .lower import lowered
from .network import Block, Ids, flat
from .slabs import cut


def tables(model: nn.Module, example_inputs: Any) -> Tables:
    """The sparse form of a model, values in fp32.

    The model may be masked, baked or compacted: connections that are zero, units that no input
    reaches and units that reach no output all vanish, and its outputs stay the same.

    >>> import torch
    >>> layer = nn.Linear(3, 2)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]))
    >>> found = tables(layer, torch.zeros(1, 3))
    >>> found.weights, found.units, found.inputs, found.outputs
    (1, 2, ((3,),), ((2,),))
    """
    net = lowered(model, example_inputs)
    for signal in (*net.inputs, *net.outputs):
        if not signal.shape or signal.shape[0] != 1:
            raise TrellisError(
                f"an input or output has the shape {signal.shape}: sparse tables want a batch of "
                "one sample, of which each dimension behind the first is a unit's place"
            )
    fold(net)
    keep_live(net)
    if any(not np.isfinite(block.weights).all() or not np.isfinite(block.bias).all()
           for block in net.blocks):  # fmt: skip
        raise TrellisError("the model holds a weight or bias that is not finite")
    cut(net)
    layout = laid_out(net)
    steps = [
        _step(block, groups, layout.address)
        for block, groups in zip(net.blocks, layout.groups, strict=True)
    ]
    results = np.concatenate([layout.address[flat(signal)] for signal in net.outputs])
    return Tables(
        tuple(signal.shape[1:] for signal in net.inputs),
        tuple(signal.shape[1:] for signal in net.outputs),
        layout.size, tuple(steps), results,
    )  # fmt: skip


def _step(block: Block, groups: Groups, address: Ids) -> Step:
    dots = block.kind == "dot"
    empty = np.zeros(0, np.int64)
    return Step(
        block.kind, block.act, groups.fan, groups.count, groups.bias.astype(np.float32),
        np.ones(len(groups.fan), np.float32),
        groups.terms[:, 0] if dots else groups.terms,
        groups.terms[:, 1] if dots else empty,
        np.zeros(0, np.float32) if block.kind == "max" else groups.weights.astype(np.float32),
        groups.offsets, address[units_of(block)][groups.rows], block.adds,
    )  # fmt: skip
