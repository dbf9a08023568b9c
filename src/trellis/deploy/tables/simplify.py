"""Make a written-out network smaller: merge loops, choose loops or tables, fold constants."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .form import NONE
from .network import Flags, Ids, Network, PlaneBlock, RowBlock, coalesce, flat, written_out

# Merge loops: norms, activations, residual sums, slices and padding into the layer beside them.


def merge(net: Network) -> None:
    """Rewrite a network's plane blocks in place until nothing more can be merged."""
    while _read_through(net) or _into_producer(net):
        _drop_unread(net)


class _Owners:
    """Who makes each unit, and who reads it: blocks are named by their first unit."""

    def __init__(self, net: Network) -> None:
        self.of = np.full(net.units, -1, np.int64)
        for block in net.blocks:
            self.of[block.first : block.first + block.units] = block.first
        self.groups: dict[int, list[PlaneBlock | RowBlock]] = {}
        self.readers: dict[int, set[int]] = {}
        for block in net.blocks:
            self.groups.setdefault(block.first, []).append(block)
            for source in np.unique(self.of[read_by(block)]):
                self.readers.setdefault(int(source), set()).add(block.first)
        for signal in net.outputs:
            for source in np.unique(self.of[flat(signal)]):
                self.readers.setdefault(int(source), set()).add(-2)

    def planes(self, units: Ids) -> list[PlaneBlock] | None:
        """Return the blocks that make all these units, if they are one grid of planes."""
        found = np.unique(self.of[units.reshape(-1)])
        if len(found) != 1 or int(found[0]) < 0:
            return None
        group = self.groups[int(found[0])]
        return group if isinstance(group[0], PlaneBlock) else None  # type: ignore[return-value]


def read_by(block: PlaneBlock | RowBlock) -> Ids:
    """Return all units that a block reads."""
    if isinstance(block, PlaneBlock):
        return block.reads()
    return block.reads if block.others is None else np.concatenate([block.reads, block.others])


def _drop_unread(net: Network) -> None:
    owners = _Owners(net)
    net.blocks = [block for block in net.blocks if owners.readers.get(block.first)]


def _coordinates(group: list[PlaneBlock], units: Ids) -> tuple[Ids, Ids, Ids]:
    """Return channel, row and column of units in the grid of their blocks."""
    _, height, width = group[0].grid
    at = units - group[0].first
    return at // (height * width), at // width % height, at % width


# A copy with zeros around it is read through: its reader has that padding itself.


def _read_through(net: Network) -> bool:
    owners = _Owners(net)
    for block in net.blocks:
        if not isinstance(block, PlaneBlock):
            continue
        group = owners.planes(block.source)
        if group is None or len(group) > 1:
            continue
        [copy] = group
        if not copy.copies or copy.stride != (1, 1) or not _whole(owners, copy.source):
            continue
        rows, columns = copy.source.shape[1:]
        covers = all(
            copy.offset[d] <= 0 and copy.offset[d] + copy.size[d] >= (rows, columns)[d]
            for d in (0, 1)
        )
        channel, _, _ = _coordinates(group, block.source)
        whole = (
            block.source.shape[1:] == copy.size
            and (block.source == copy.unit_numbers()[channel[:, 0, 0]]).all()
        )
        if not (covers and whole) or block.kind == "mean":
            continue
        block.source = copy.source[channel[:, 0, 0]]
        block.offset = (block.offset[0] + copy.offset[0], block.offset[1] + copy.offset[1])
        return True
    return False


def _whole(owners: _Owners, planes: Ids) -> bool:
    """Whether these are whole planes of plane blocks: only those have zeros around them."""
    for plane in planes:
        group = owners.planes(plane)
        if group is None or plane.shape != group[0].grid[1:]:
            return False
        _, row, column = _coordinates(group, plane[0, 0])
        if row or column or not (plane.reshape(-1) == plane[0, 0] + np.arange(plane.size)).all():
            return False
    return True


# What is done to each unit of one layer alone is done by that layer.


def _into_producer(net: Network) -> bool:
    owners = _Owners(net)
    for number, block in enumerate(net.blocks):
        if not isinstance(block, PlaneBlock) or not block.plain or block.outside:
            continue
        if len(owners.groups[block.first]) > 1:
            continue
        for candidate in (block, _swapped(block)):
            if candidate is None:
                continue
            group = owners.planes(candidate.source)
            if group is None or owners.readers[group[0].first] != {block.first}:
                continue
            if candidate.extra is not None:
                after = owners.of[candidate.extra[candidate.extra >= 0]]
                if (after == group[0].first).any():
                    continue
            made = _merged(group, candidate)
            if made is None:
                continue
            net.blocks[number : number + 1] = made
            net.blocks = [b for b in net.blocks if not any(b is old for old in group)]
            return True
    return False


def _swapped(block: PlaneBlock) -> PlaneBlock | None:
    """Return a residual sum with its two sides exchanged, or None."""
    whole = block.size == block.source.shape[1:] and block.stride == (1, 1)
    if block.extra is None or not whole or block.offset != (0, 0):
        return None
    if not (block.scale == 1).all() or (block.extra < 0).any():
        return None
    return dataclasses.replace(block, source=block.extra, extra=block.source)


def _merged(group: list[PlaneBlock], block: PlaneBlock) -> list[PlaneBlock] | None:
    """Return the blocks of ``group``, changed to compute what ``block`` does, or None."""
    rows, columns = (at[:, 0] for at in block.rows_read())
    read = block.source[:, rows[:, None], columns]  # (channels, *size)
    channel, row, column = _coordinates(group, read)
    if not (channel == channel[:, :1, :1]).all() or len(set(channel[:, 0, 0])) != len(channel):
        return None
    row, column = row[0, :, 0], column[0, 0, :]
    expected = _rows_of(group, channel[:, 0, 0], row, column)
    if not (read == expected).all():
        return None
    changes = (block.scale != 1).any() or (block.bias != 0).any() or block.act != NONE
    grid = (len(channel), *block.size)
    # Parts of one grid: whole, and unit by unit.
    if len(group) > 1 and (block.extra is not None or grid[1:] != group[0].grid[1:]):
        return None
    made = []
    for old in group:
        if (changes or block.extra is not None) and old.act != NONE:
            return None
        if old.extra is not None and (block.extra is not None or (block.scale != 1).any()):
            return None
        if old.kind == "peak" and block.extra is not None:
            return None
        if old.extra is not None and block.size != old.size:
            return None
        new = _channels(old, np.searchsorted(old.channels, channel[:, 0, 0]))
        if len(group) == 1:
            first = (int(row[0]), int(column[0]))
            step = [int(at[1] - at[0]) if len(at) > 1 else 1 for at in (row, column)]
            (oy, ox), (sy, sx) = new.offset, new.stride
            new = dataclasses.replace(
                new, size=block.size, offset=(oy + first[0] * sy, ox + first[1] * sx),
                stride=(step[0] * sy, step[1] * sx),
            )  # fmt: skip
        new = dataclasses.replace(
            new, first=block.first, grid=grid, channels=np.arange(len(channel)),
            scale=new.scale * block.scale, bias=new.bias * block.scale + block.bias,
            act=old.act if block.act == NONE else block.act,
            extra=new.extra if block.extra is None else block.extra,
            wiring=old.wiring and block.wiring, name=old.name or block.name,
        )  # fmt: skip
        made.append(new)
    return made


def _rows_of(group: list[PlaneBlock], channel: Ids, row: Ids, column: Ids) -> Ids:
    _, height, width = group[0].grid
    plane = row[:, None] * width + column
    return group[0].first + channel[:, None, None] * (height * width) + plane


def _channels(block: PlaneBlock, keep: Ids) -> PlaneBlock:
    """Return some channels of a block, in this order."""
    changed: dict[str, Any] = {
        "channels": block.channels[keep], "scale": block.scale[keep], "bias": block.bias[keep],
        "extra": None if block.extra is None else block.extra[keep],
    }  # fmt: skip
    if block.shared:
        return dataclasses.replace(block, source=block.source[keep], **changed)
    fan = block.fan()[keep]
    starts = np.concatenate([[0], np.cumsum(fan)])
    within = np.arange(fan.sum()) - np.repeat(starts[:-1], fan)
    taps = np.repeat(block.starts[:-1][keep], fan) + within
    return dataclasses.replace(
        block, taps=block.taps[taps], weights=block.weights[taps], starts=starts, **changed
    )


def kept_channels(block: PlaneBlock, keep: Ids) -> PlaneBlock:
    """Return some channels of a block, and of its sources those that a tap reads."""
    made = _channels(block, keep)
    if made.shared:
        return made
    used, planes = np.unique(made.plane_of_tap(), return_inverse=True)
    entries = made.window[0] * made.window[1]
    taps = planes * entries + made.taps % entries
    return dataclasses.replace(made, source=made.source[used], taps=taps)


# Whether a layer is better written out: a table then names each unit that it reads.


@dataclasses.dataclass(frozen=True)
class Choice:
    """How a layer is stored: ``"loop"`` or ``"table"``, and the estimated bytes of either."""

    name: str
    form: str
    loop_bytes: int
    table_bytes: int
    multiplications: int

    def __str__(self) -> str:
        """
        >>> print(Choice("body.conv1", "loop", 800, 90_000, 12_000))
        body.conv1: loop of about 800 bytes (as a table 90,000), 12,000 multiplications
        """
        own, other = self.loop_bytes, self.table_bytes
        if self.form == "table":
            own, other = other, own
        opposite = "table" if self.form == "loop" else "loop"
        return (
            f"{self.name or 'model'}: {self.form} of about {own:,} bytes (as a {opposite} "
            f"{other:,}), {self.multiplications:,} multiplications"
        )


def choose(net: Network) -> list[Choice]:
    """Write out, in place, the blocks for which a table is smaller and faster; return choices.

    What a loop reads stays a loop: only that has zeros around its planes.
    """
    owners = _Owners(net)
    found: list[Choice] = []
    blocks: list[PlaneBlock | RowBlock] = []
    looped: set[int] = set()
    for block in reversed(net.blocks):
        if isinstance(block, PlaneBlock):
            choice = _choice(block)
            if block.first in looped or len(owners.groups[block.first]) > 1 or _scaled(block):
                choice = dataclasses.replace(choice, form="loop")
            found.append(choice)
            if choice.form == "table":
                blocks.append(written_out(block))
                continue
            looped.update(int(first) for first in np.unique(owners.of[block.reads()]))
        blocks.append(block)
    net.blocks = blocks[::-1]
    return found[::-1]


def _scaled(block: PlaneBlock) -> bool:
    """Return whether a norm became part of a maximum: rows of a table have no place for it."""
    return block.kind == "peak" and bool((block.scale != 1).any() or (block.bias != 0).any())


def _choice(block: PlaneBlock) -> Choice:
    """Compare bytes times cycles, both estimated: a table costs per use, a loop per eight uses."""
    count, positions = len(block.channels), block.size[0] * block.size[1]
    fan = block.window[0] * block.window[1] if block.kind == "mean" else len(block.taps)
    uses = fan * positions * (count if block.shared else 1)
    classes = min(positions, 9) if block.outside else 1
    loop_bytes = (0 if block.kind == "mean" else 5 * fan) + 8 * count + 80
    table_bytes = 6 * (uses if block.shared else fan) * classes + 4 * count * positions
    if block.shared:  # channels at equal distances share their terms
        table_bytes = 6 * fan * classes + 4 * count * positions
    vectors = -(-positions // 8)
    loop_time = fan * vectors * (count if block.shared else 1) + 30 * count
    table_time = uses + 2 * count * positions
    if positions == 1 and not block.shared:
        loop_time = uses + 30 * count
    # A network without tables needs no kernel for them: a table must win clearly.
    form = "table" if 2 * table_bytes * table_time < loop_bytes * loop_time else "loop"
    return Choice(block.name, form, loop_bytes, table_bytes, uses)


# Fold constants into biases, and norms and residual sums into the operation before them.


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
