"""Order the blocks of a network and assign an address in memory to each unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .form import NONE
from .network import Flags, Ids, Network, PlaneBlock, Reals, RowBlock, flat
from .simplify import kept_channels, read_by

# Slabs: cut wide networks, so that the reader of one part of a block follows that part at once.
#
# Where a block and its reader fall into parts that have nothing to do with each other (the heads of
# a graph network, the groups of a convolution), they are computed part after part. Memory is then
# needed for one part alone, and stays near the processor. A layer that reads all parts is summed up
# as they come.


SLAB = 4096  # units of a part, or more
_WORTH = 16  # terms that a row needs in every part, for its sum to be split


def cut(net: Network) -> None:
    """Reorder the blocks of a network in place."""
    blocks, done = net.blocks, []
    while blocks:
        block, *rest = blocks
        found = _parts(block, rest) if rest else None
        if found is None:
            done.append(block)
            blocks = rest
            continue
        own, other, count = found
        reader, *rest = rest
        sums = _partial(rest[0], reader, other, count, rest[1:]) if rest else []
        for part in range(count):
            pair = _rows(block, own == part), _rows(reader, other == part)
            done += [some for some in pair if some.rows]
            done += sums[part : part + 1]
        blocks = rest[1:] if sums else rest
    net.blocks = done


def _parts(block: RowBlock, rest: list[RowBlock]) -> tuple[Ids, Ids, int] | None:
    """Return the part of each row of a block, and of each row of its only reader."""
    low, high = block.first, block.first + int(np.prod(block.shape))
    if block.rows < 2 * SLAB:
        return None
    readers = [reader for reader in rest if _reads(reader, low, high)]
    if readers != rest[:1] or readers[0].kind == "dot":
        return None
    reader = readers[0]
    mine = (reader.reads >= low) & (reader.reads < high)
    rows, weights = reader.row_of_term[mine], reader.weights[mine]
    at = np.unravel_index(reader.reads[mine] - low, block.shape)
    along = _dimension(at, rows, weights, reader.rows)
    if along is None:
        return None
    own = np.unravel_index(block.places, block.shape)[along]
    sizes = np.bincount(own, minlength=block.shape[along])
    part = (np.cumsum(sizes) - sizes) // SLAB  # of each index along the dimension
    part = np.unique(part, return_inverse=True)[1]
    other = np.zeros(reader.rows, np.int64)  # a row that reads nothing of the block comes first
    other[rows] = part[at[along]]
    count = int(part.max()) + 1
    return None if count < 2 else (part[own], other, count)


def _dimension(at: tuple[Ids, ...], rows: Ids, weights: Reals, count: int) -> int | None:
    """Find a dimension of which each row reads one index and whose indices share no weights."""
    distinct = len(np.unique(weights))
    for along, index in enumerate(at):
        lowest, highest = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
        np.minimum.at(lowest, rows, index)
        np.maximum.at(highest, rows, index)
        if len(np.unique(index)) < 2 or np.any(highest > np.where(highest < 0, 0, lowest)):
            continue
        pairs = np.unique(np.stack([weights, index.astype(np.float64)]), axis=1).shape[1]
        if pairs <= 1.02 * distinct + 8:  # equal by chance, some will be
            return along
    return None


def _partial(
    block: RowBlock, source: RowBlock, part: Ids, count: int, later: list[RowBlock]
) -> list[RowBlock]:
    """Split a sum over all parts of ``source`` into one sum per part."""
    low, high = source.first, source.first + int(np.prod(source.shape))
    if block.kind != "sum" or len(block.reads) < _WORTH * count * block.rows:
        return []
    inside = (block.reads >= low) & (block.reads < high)
    if not inside.all() or any(_reads(reader, low, high) for reader in later):
        return []
    part_of = np.zeros(high - low, np.int64)
    part_of[source.places] = part
    of_term, row = part_of[block.reads - low], block.row_of_term
    made: list[RowBlock] = []
    for number in range(count):
        mine = of_term == number
        starts = np.searchsorted(row[mine], np.arange(block.rows + 1)).astype(np.int64)
        made.append(
            RowBlock(
                "sum",
                block.first,
                block.shape,
                starts,
                block.reads[mine],
                block.weights[mine],
                np.zeros(block.rows) if number else block.bias.copy(),
                block.act if number == count - 1 else NONE,
                places=block.places,
                adds=number > 0,
            )
        )
    return made


def _reads(block: RowBlock, low: int, high: int) -> bool:
    found = bool(((block.reads >= low) & (block.reads < high)).any())
    if block.others is not None:
        found |= bool(((block.others >= low) & (block.others < high)).any())
    return found


def _rows(block: RowBlock, rows: Flags) -> RowBlock:
    """Return some rows of a block."""
    terms = np.repeat(rows, block.fan)
    return RowBlock(
        block.kind, block.first, block.shape, np.r_[0, np.cumsum(block.fan[rows])],
        block.reads[terms], block.weights[terms], block.bias[rows], block.act, block.wiring,
        None if block.others is None else block.others[terms], block.places[rows],
    )  # fmt: skip


# Only units that an output depends on get an address.


def keep_live(net: Network) -> None:
    """Drop, in place, every row that reaches no output. Unit numbers do not change; a block's
    ``places`` say which of its rows are left."""
    needed = np.zeros(net.units, bool)
    for signal in net.outputs:
        needed[flat(signal)] = True
    kept: list[RowBlock | PlaneBlock] = []
    for block in reversed(net.blocks):
        if isinstance(block, PlaneBlock):
            live = needed[block.grid_numbers()].reshape(len(block.channels), -1).any(axis=1)
            if live.any():
                block = kept_channels(block, np.flatnonzero(live))
                needed[block.reads()] = True
                kept.append(block)
            continue
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


def units_of(block: RowBlock) -> Ids:
    """Return the unit numbers of the rows that are left."""
    return block.first + block.places


# Rows with the same weights, which read at the same distances, are one group.


@dataclass(eq=False)
class Groups:
    """The rows of a block by group: ``fan`` terms each, ``count`` rows ("instances") each.

    Term t of instance n reads address ``terms[t] + offsets[n]``; a group's first term is 0.
    Groups come with ascending fan, so that a loop over terms keeps its length for long.
    """

    fan: Ids  # (groups,)
    count: Ids  # (groups,)
    bias: Reals  # (groups,)
    terms: Ids  # (Σ fan,), or (Σ fan, 2) of dots
    weights: Reals  # (Σ fan,)
    offsets: Ids  # (Σ count,)
    rows: Ids  # (Σ count,): which row of the block each instance is


def grouped(block: RowBlock, address: Ids) -> Groups:
    """Group a block's rows, given the address of every unit."""
    parts: list[Groups] = []
    fan = block.fan
    for width in np.unique(fan):
        parts.append(_of_width(block, address, np.flatnonzero(fan == width), int(width)))
    return Groups(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("fan", "count", "bias", "terms", "weights", "offsets", "rows")
        )
    )


def _of_width(block: RowBlock, address: Ids, rows: Ids, width: int) -> Groups:
    at = block.starts[rows][:, None] + np.arange(width)  # (rows, width)
    reads, weights = address[block.reads[at]], block.weights[at].astype(np.float32)
    bias = block.bias[rows].astype(np.float32)
    if width and block.others is None:  # in order of address, whichever order they came in
        order = np.argsort(reads, axis=1, kind="stable")
        reads = np.take_along_axis(reads, order, axis=1)
        weights = np.take_along_axis(weights, order, axis=1)
    elif width:
        assert block.others is not None
        reads = np.stack([reads, address[block.others[at]]], axis=2).reshape(len(rows), -1)
    first = reads[:, 0] if width else np.zeros(len(rows), np.int64)
    relative = reads - first[:, None]
    key = np.ascontiguousarray(
        np.concatenate(
            [
                relative.astype(np.int32),
                (weights + np.float32(0)).view(np.int32),  # −0.0 is 0.0
                (bias + np.float32(0)).view(np.int32)[:, None],
            ],
            axis=1,
        )
    )
    void = key.view(np.dtype((np.void, key.shape[1] * 4)))[:, 0]
    _, sample, member = np.unique(void, return_index=True, return_inverse=True)
    count = np.bincount(member)
    lowest = np.full(len(count), np.iinfo(np.int64).max)
    np.minimum.at(lowest, member, first)
    rank = np.empty(len(count), np.int64)
    order = np.lexsort((lowest, count))  # equal counts together, then by address
    rank[order] = np.arange(len(count))
    instances = np.lexsort((first, rank[member]))
    sample = sample[order]
    shape = (-1,) if block.others is None else (-1, 2)
    return Groups(
        np.full(len(order), width), count[order], bias[sample].astype(np.float64),
        relative[sample].reshape(shape), weights[sample].reshape(-1).astype(np.float64),
        first[instances], rows[instances],
    )  # fmt: skip


def bits(groups: Groups) -> float:
    """Estimate the bits of the groups in a file, to choose between layouts."""
    gap = np.abs(np.diff(groups.offsets, prepend=0))
    return float(20 * len(groups.fan) + 12 * len(groups.weights) + (1 + 2 * np.log2(1 + gap)).sum())


_MANY = 2_000_000  # terms beyond which only few layouts are tried


@dataclass(frozen=True)
class Planes:
    """How the planes of one grid lie: ``rows`` and ``gap`` zeros around each of them."""

    channels: int
    height: int
    width: int
    rows: int
    gap: int

    @property
    def pitch(self) -> int:
        return self.width + self.gap

    @property
    def plane(self) -> int:
        return (self.height + self.rows) * self.pitch

    @property
    def before(self) -> int:
        return self.rows * self.pitch + self.gap

    @property
    def size(self) -> int:
        return self.channels * self.plane + self.before


@dataclass(eq=False)
class MemoryLayout:
    """The ``address`` of every unit (−1 without one) and the ``size`` of memory."""

    address: Ids
    size: int
    groups: list[Groups | None]  # of each block, by these addresses; None of plane blocks
    planes: dict[int, Planes]  # by first unit
    owner: Ids  # the first unit of the block that makes a unit

    def pitch_of(self, unit: int) -> int:
        """Return the distance of rows where a unit lies, or 1 where it is in no plane."""
        found = self.planes.get(int(self.owner[unit]))
        return 1 if found is None else found.pitch


def laid_out(net: Network) -> MemoryLayout:
    """Lay out the inputs first, then the blocks; memory is reused after its last read.

    The units of a block are either packed, in the order in which they are computed, or on a grid
    along whose axes their readers can share one table. The choice makes the readers' groups
    smaller; packed wins a tie. Planes have zeros around them where a loop reads padding.
    """
    inputs = net.input_units
    address = np.full(net.units, -1, np.int64)
    address[:inputs] = np.arange(inputs)
    owner = np.full(net.units, -1, np.int64)
    planes = _bordered(net)
    base = inputs
    looped = np.zeros(net.units, bool)  # units that a loop reads
    for block in net.blocks:  # provisional: until its layout is chosen, a block lies as it came
        owner[block.first : block.first + block.units] = block.first
        if isinstance(block, PlaneBlock):
            looped[block.reads()] = True
            address[block.grid_numbers()] = base + _places(block, planes[block.first])
            base += planes[block.first].size if block.start == (0, 0) else 0
        else:
            address[units_of(block)] = base + block.places
            base += block.units
    homes: list[int] = []
    sizes: list[int] = []
    relative: list[Ids] = []
    seen: set[int] = set()  # grids that several blocks fill
    for number, block in enumerate(net.blocks):
        if isinstance(block, PlaneBlock):
            if block.first not in seen:
                seen.add(block.first)
                relative.append(_places(block, planes[block.first]))
                sizes.append(planes[block.first].size)
                homes.append(number)
            continue
        if block.adds:  # to what lies there already
            continue
        start = int(address[units_of(block)].min())
        if looped[units_of(block)].any():
            places = block.places
        else:
            places = _chosen(net, number, block, address, start)
        address[units_of(block)] = start + places
        relative.append(places)
        sizes.append(int(places.max()) + 1)
        homes.append(number)
    bases, size = _packed(net, homes, sizes, relative)
    for number, begin, places in zip(homes, bases, relative, strict=True):
        address[_made(net.blocks[number])] = begin + places
    groups = [
        None if isinstance(block, PlaneBlock) else grouped(block, address) for block in net.blocks
    ]
    return MemoryLayout(address, size, groups, planes, owner)


def _places(block: PlaneBlock, planes: Planes) -> Ids:
    """Return where whole planes lie, (channels, height, width)."""
    rows = np.arange(planes.height)[:, None] * planes.pitch + np.arange(planes.width)
    return planes.before + np.arange(planes.channels)[:, None, None] * planes.plane + rows


def _bordered(net: Network) -> dict[int, Planes]:
    """Return how the planes of each grid lie. Grids that are read at the same positions have the
    same pitch, so that their rows can be computed as one."""
    blocks = {block.first: block for block in net.blocks if isinstance(block, PlaneBlock)}
    owner = np.full(net.units, -1, np.int64)
    for first, block in blocks.items():
        owner[first : first + block.units] = first
    leader = {first: first for first in blocks}

    def found(first: int) -> int:
        while leader[first] != first:
            first = leader[first]
        return first

    border = dict.fromkeys(blocks, (0, 0))
    for block in net.blocks:
        if not isinstance(block, PlaneBlock):
            continue
        alike = [int(first) for first in np.unique(owner[block.source[:, 0, 0]]) if first >= 0]
        need = []
        for at, size in zip(block.rows_read(), block.source.shape[1:], strict=True):
            need.append(max(-int(at.min()), int(at.max()) - size + 1, 0))
        for first in alike:
            border[first] = (max(border[first][0], need[0]), max(border[first][1], need[1]))
        same = block.stride == block.spread == (1, 1) and block.kind != "mean"
        if same and alike and block.grid[1:] == blocks[alike[0]].grid[1:]:
            alike.append(block.first)
        if block.extra is not None:
            after = np.unique(owner[block.extra[block.extra >= 0]])
            alike += [block.first] if block.first not in alike else []
            alike += [int(first) for first in after]
        for first in alike[1:]:
            leader[found(first)] = found(alike[0])
    most: dict[int, tuple[int, int]] = {}
    for first, (rows, gap) in border.items():
        before = most.get(found(first), (0, 0))
        most[found(first)] = (max(before[0], rows), max(before[1], gap))
    return {
        first: Planes(len(block.channels), *block.grid[1:], *most[found(first)])
        for first, block in blocks.items()
    }


def _chosen(net: Network, number: int, block: RowBlock, address: Ids, start: int) -> Ids:
    own = grouped(block, address)
    packed = np.empty(block.rows, np.int64)
    packed[own.rows] = np.arange(block.rows)
    units = units_of(block)
    mine = np.zeros(net.units, bool)
    mine[units] = True
    after = [reader for reader in net.blocks[number + 1 :] if not isinstance(reader, PlaneBlock)]
    readers = [reader for reader in after if mine[read_by(reader)].any()]
    shared = [
        reader
        for reader in readers
        if reader.rows > 1 and reader.rows * 2 > len(reader.reads) // 64
    ]
    if not shared:
        return packed
    terms = sum(len(reader.reads) for reader in readers)
    best, least = packed, np.inf
    for places in _candidates(block, packed, few=terms > _MANY):
        trial = address.copy()
        trial[units] = start + places
        cost = sum(bits(grouped(reader, trial)) for reader in readers)
        cost += 0.02 * int(places.max())  # room costs a little
        if cost < least:
            best, least = places, cost
    return best


def _candidates(block: RowBlock, packed: Ids, few: bool) -> Iterator[Ids]:
    yield packed
    index = np.stack(np.unravel_index(block.places, block.shape))  # (dims, rows)
    index = index[[d for d in range(len(index)) if len(np.unique(index[d])) > 1]]
    dims = len(index)
    for inner in range(dims - 1, -1, -1):
        outer = [d for d in range(dims) if d != inner]
        yield _grid(index, [], [*outer, inner])
        if few:
            continue
        for split in outer:
            rest = [d for d in outer if d != split]
            if rest:
                yield _grid(index, [split], [*rest, inner])


def _grid(index: Ids, split: list[int], order: list[int]) -> Ids:
    """Row-major along ``order``, gaps closed; apart for each index of the ``split`` dimension."""
    if not split:
        return _dense(index[order])
    places = np.empty(index.shape[1], np.int64)
    base = 0
    for value in np.unique(index[split[0]]):
        part = index[split[0]] == value
        within = _dense(index[order][:, part])
        places[part] = base + within
        base += int(within.max()) + 1
    return places


def _dense(index: Ids) -> Ids:
    place = np.zeros(index.shape[1], np.int64)
    for row in index:
        used, where = np.unique(row, return_inverse=True)
        place = place * len(used) + where
    return place


def _made(block: RowBlock | PlaneBlock) -> Ids:
    """Return the units that get an address with a block: of planes, the whole grid."""
    return block.grid_numbers() if isinstance(block, PlaneBlock) else units_of(block)


def _packed(
    net: Network, homes: list[int], sizes: list[int], relative: list[Ids]
) -> tuple[list[int], int]:
    """First fit, in order of time: a block's memory is free after its last reader. Planes that are
    added to others lie on top of them, where nothing reads those later."""
    owner = np.full(net.units, -1, np.int64)
    place = np.zeros(net.units, np.int64)
    for home, number in enumerate(homes):
        owner[_made(net.blocks[number])] = home
        place[_made(net.blocks[number])] = relative[home]
    last = list(homes)
    for number, block in enumerate(net.blocks):
        for units in (read_by(block), _made(block)):
            for source in np.unique(owner[units]):
                if source >= 0:
                    last[source] = max(last[source], number)
    for signal in net.outputs:
        for source in np.unique(owner[flat(signal)]):
            if source >= 0:
                last[source] = len(net.blocks)
    fillers = [block.first for block in net.blocks]
    under: list[tuple[int, int] | None] = []  # of each home: what it may lie on, and how far along
    for number in homes:
        block = net.blocks[number]
        added = _added_to(block, owner, place) if fillers.count(block.first) == 1 else None
        under.append(added if added is not None and last[added[0]] == number else None)
    apart = _first_fit(net.input_units, homes, sizes, last, [None] * len(homes))
    over = _first_fit(net.input_units, homes, sizes, last, under)
    return min(apart, over, key=lambda found: found[1])  # the rest may be packed worse


def _first_fit(
    begins: int, homes: list[int], sizes: list[int], last: list[int],
    under: list[tuple[int, int] | None],
) -> tuple[list[int], int]:  # fmt: skip
    bases: list[int] = []
    top = begins
    for home, size in enumerate(sizes):
        busy = [i for i in range(home) if last[i] >= homes[home]]
        begin = None
        if (below := under[home]) is not None:
            begin = bases[below[0]] + below[1]
            taken = [(bases[i], bases[i] + sizes[i]) for i in busy if i != below[0]]
            if begin < begins or any(low < begin + size and begin < high for low, high in taken):
                begin = None
        if begin is None:
            begin = begins
            for low, high in sorted((bases[i], bases[i] + sizes[i]) for i in busy):
                if low - begin >= size:
                    break
                begin = max(begin, high)
        bases.append(begin)
        top = max(top, begin + size)
    return bases, top


def _added_to(block: RowBlock | PlaneBlock, owner: Ids, place: Ids) -> tuple[int, int] | None:
    """Return what a block of planes can lie on top of: the place in ``owner`` of what it adds, and
    the distance to where that begins at which each unit lies on the one that is added to it.

    The block reads such a unit just before it writes there, and reads nothing else of that signal.
    """
    if not isinstance(block, PlaneBlock) or block.extra is None:
        return None
    real = block.extra >= 0
    under = np.unique(owner[block.extra[real]])
    if len(under) != 1 or under[0] < 0 or (owner[block.source] == under[0]).any():
        return None
    shifts = np.unique(place[block.extra[real]] - place[block.unit_numbers()[real]])
    return (int(under[0]), int(shifts[0])) if len(shifts) == 1 else None
