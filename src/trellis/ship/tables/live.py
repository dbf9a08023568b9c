"""Only units that an output depends on get a place."""

from __future__ import annotations

import numpy as np

from .network import Block, Ids, Network, flat


def keep_live(net: Network) -> None:
    """Drop, in place, every row that reaches no output. Unit numbers stay what they were; a
    block's ``places`` say which of its rows are left."""
    needed = np.zeros(net.units, bool)
    for signal in net.outputs:
        needed[flat(signal)] = True
    kept: list[Block] = []
    for block in reversed(net.blocks):
        rows = needed[block.first : block.first + block.rows]
        if not rows.any():
            continue
        terms = np.repeat(rows, block.fan)
        block.starts = np.r_[0, np.cumsum(block.fan[rows])]
        block.reads, block.weights = block.reads[terms], block.weights[terms]
        if block.others is not None:
            block.others = block.others[terms]
            needed[block.others] = True
        block.bias, block.places = block.bias[rows], block.places[rows]
        needed[block.reads] = True
        kept.append(block)
    net.blocks = kept[::-1]


def units_of(block: Block) -> Ids:
    """Numbers of the rows that are left."""
    return block.first + block.places
