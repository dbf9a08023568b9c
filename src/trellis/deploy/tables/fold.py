"""Fold constants into biases, and norms and residual sums into the operation before them."""

from __future__ import annotations

import numpy as np

from .activation import NONE
from .network import Flags, Ids, Network, RowBlock, coalesce, flat
from .planes import PlaneBlock


def fold(net: Network) -> None:
    """Rewrite every block in place, first to last.

    - A unit that reads nothing is a constant, and what it contributes is added to the biases of
      its readers: exactly what a unit that no input reaches amounts to.
    - A scaled copy is read through. A sum without activation that only one wiring row reads (a
      batch norm, a residual sum, an activation) moves into that row.
    """
    fate = _Fate(net)
    for block in net.blocks:
        if isinstance(block, PlaneBlock):
            fate.planes(block)
            continue
        if block.kind == "dot":
            fate.halve(block)
        if block.kind == "sum":
            fate.constants(block)
            fate.inline(block)
        else:
            fate.copies(block)
        fate.settle(block)


class _Fate:
    """What is known of each unit so far."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.constant = np.zeros(net.units, bool)
        self.value = np.zeros(net.units)
        self.single = np.zeros(net.units, bool)  # reads one unit, linearly, by wiring
        self.linear = np.zeros(net.units, bool)  # reads some, without activation
        self.firsts = np.array([block.first for block in net.blocks] or [0])
        readers = np.zeros(net.units, np.int64)
        for block in net.blocks:
            if isinstance(block, PlaneBlock):
                np.add.at(readers, block.reads(), 1)
                continue
            np.add.at(readers, block.reads, 1)
            if block.others is not None:
                np.add.at(readers, block.others, 1)
        for signal in net.outputs:
            np.add.at(readers, flat(signal), 1)
        self.readers = readers

    def settle(self, block: RowBlock) -> None:
        """Record which units of a finished block are constants, copies or plain sums."""
        span = slice(block.first, block.first + block.rows)
        if block.kind != "max":
            self.constant[span] = block.fan == 0
            self.value[span] = block.act(block.bias)
        if block.kind == "sum":
            plain = block.act == NONE
            self.linear[span] = plain & (block.fan > 0)
            self.single[span] = plain & block.wiring & (block.fan == 1)

    def planes(self, block: PlaneBlock) -> None:
        """Drop taps of planes that are zero, and fold constant ones where no padding is read.

        Behind padding, a constant plane counts less at the border: it stays, and is filled.
        """
        fixed = self.constant[block.source].reshape(len(block.source), -1).all(axis=1)
        values = self.value[block.source].reshape(len(block.source), -1)
        alike = fixed & (values == values[:, :1]).all(axis=1)
        known = alike & ((values[:, 0] == 0) | (not block.outside))
        if block.extra is not None:
            extra = block.extra.reshape(len(block.extra), -1)
            told = self.value[np.maximum(extra, 0)]
            gone = (extra[:, 0] >= 0) & self.constant[np.maximum(extra, 0)].all(axis=1)
            gone &= (told == told[:, :1]).all(axis=1)
            block.bias = block.bias + np.where(gone, told[:, 0], 0.0)
            block.extra = np.where(gone[:, None, None], -1, block.extra)
            if (block.extra < 0).all():
                block.extra = None
        settled = np.zeros(len(block.channels), bool)
        if block.shared:
            factor = block.weights.sum() if block.kind == "conv" else 1.0
            if block.kind == "mean":
                factor = float(np.prod(block.window))
            total = np.where(known, values[:, 0] * factor, 0.0)
            settled = known
        else:
            plane = block.plane_of_tap()
            channel = np.repeat(np.arange(len(block.channels)), block.fan())
            gone = known[plane]
            total = np.zeros(len(block.channels))
            np.add.at(total, channel[gone], (block.weights * values[plane, 0])[gone])
            block.bias = block.bias + block.scale * total
            total = np.zeros(len(block.channels))
            block.taps, block.weights = block.taps[~gone], block.weights[~gone]
            counts = np.arange(len(block.channels) + 1)
            block.starts = np.searchsorted(channel[~gone], counts).astype(np.int64)
            settled = block.fan() == 0
        if block.extra is not None:
            settled = settled & (block.extra[:, 0, 0] < 0)
        units = block.unit_numbers()
        self.constant[units[settled]] = True
        value = block.act(block.scale * total + block.bias)
        self.value[units[settled]] = value[settled][:, None, None]

    def constants(self, block: RowBlock) -> None:
        fixed = self.constant[block.reads]
        if not fixed.any():
            return
        row = block.row_of_term
        np.add.at(block.bias, row[fixed], block.weights[fixed] * self.value[block.reads[fixed]])
        self._keep(block, row, ~fixed)

    def _keep(self, block: RowBlock, row: Ids, kept: Flags) -> None:
        block.reads, block.weights, row = block.reads[kept], block.weights[kept], row[kept]
        if block.others is not None:
            block.others = block.others[kept]
        block.starts = np.searchsorted(row, np.arange(block.rows + 1)).astype(np.int64)

    def inline(self, block: RowBlock) -> None:
        through = self.single[block.reads]
        if block.wiring:
            through |= self.linear[block.reads] & (self.readers[block.reads] == 1)
        if not through.any():
            return
        row = block.row_of_term
        rows, reads, weights = [row[~through]], [block.reads[~through]], [block.weights[~through]]
        row, read, weight = row[through], block.reads[through], block.weights[through]
        owner = np.searchsorted(self.firsts, read, side="right") - 1
        for number in np.unique(owner):
            source, mine = self.net.blocks[number], owner == number
            local = read[mine] - source.first
            fan = source.fan[local]
            np.add.at(block.bias, row[mine], weight[mine] * source.bias[local])
            within = np.arange(fan.sum()) - np.repeat(np.cumsum(fan) - fan, fan)
            term = np.repeat(source.starts[local], fan) + within
            rows.append(np.repeat(row[mine], fan))
            reads.append(source.reads[term])
            weights.append(np.repeat(weight[mine], fan) * source.weights[term])
        every = np.concatenate(rows)
        order = np.argsort(every, kind="stable")
        block.reads = np.concatenate(reads)[order]
        block.weights = np.concatenate(weights)[order]
        block.starts = np.searchsorted(every[order], np.arange(block.rows + 1)).astype(np.int64)
        coalesce(block)

    def copies(self, block: RowBlock) -> None:
        """Let a maximum or a product read the original of a copied unit."""
        block.reads = self._origin(block.reads)
        if block.others is not None:
            block.others = self._origin(block.others)

    def _origin(self, reads: Ids) -> Ids:
        reads = reads.copy()
        for at in np.flatnonzero(self.single[reads]):
            source = self.net.blocks[int(np.searchsorted(self.firsts, reads[at], "right")) - 1]
            row = reads[at] - source.first
            term = source.starts[row]
            if source.bias[row] == 0 and source.weights[term] == 1:
                reads[at] = source.reads[term]
        return reads

    def halve(self, block: RowBlock) -> None:
        """Turn a product with a constant side into a sum; drop products with zero."""
        assert block.others is not None
        zero = self.constant & (self.value == 0)
        gone = zero[block.reads] | zero[block.others]
        if gone.any():
            self._keep(block, block.row_of_term, ~gone)
        assert block.others is not None
        swap = self.constant[block.reads] & ~self.constant[block.others]
        block.reads, block.others = (
            np.where(swap, block.others, block.reads), np.where(swap, block.reads, block.others),
        )  # fmt: skip
        fixed = self.constant[block.others]
        if fixed.all():
            block.weights = block.weights * self.value[block.others]
            block.kind, block.others = "sum", None
            coalesce(block)
