"""Where each unit lies in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .groups import Groups, bits, grouped
from .live import units_of
from .network import Block, Ids, Network, flat

_MANY = 2_000_000  # terms beyond which only few layouts are tried


@dataclass(eq=False)
class Layout:
    """``address`` of every unit (−1 where it has none) and how much room there is in all."""

    address: Ids
    size: int
    groups: list[Groups]  # of each block, by these addresses


def laid_out(net: Network) -> Layout:
    """Inputs first, as they come; then the blocks, memory being reused once it is read.

    The units of a block lie either packed, in the order in which they are computed, or on a grid
    along whose axes their readers can share one table. Whichever makes the readers' groups
    smaller is taken, packed where it makes no difference.
    """
    inputs = net.input_units
    address = np.full(net.units, -1, np.int64)
    address[:inputs] = np.arange(inputs)
    base = inputs
    for block in net.blocks:  # provisional: until its layout is chosen, a block lies as it came
        address[units_of(block)] = base + block.places
        base += int(np.prod(block.shape))
    sizes: list[int] = []
    relative: list[Ids] = []
    for number, block in enumerate(net.blocks):
        if block.adds:  # to what lies there already
            continue
        start = int(address[units_of(block)].min())
        places = _chosen(net, number, block, address, start)
        address[units_of(block)] = start + places
        relative.append(places)
        sizes.append(int(places.max()) + 1)
    bases, size = _packed(net, sizes)
    fresh = [block for block in net.blocks if not block.adds]
    for block, places, begin in zip(fresh, relative, bases, strict=True):
        address[units_of(block)] = begin + places
    return Layout(address, size, [grouped(block, address) for block in net.blocks])


def _chosen(net: Network, number: int, block: Block, address: Ids, start: int) -> Ids:
    own = grouped(block, address)
    packed = np.empty(block.rows, np.int64)
    packed[own.rows] = np.arange(block.rows)
    units = units_of(block)
    mine = np.zeros(net.units, bool)
    mine[units] = True
    readers = [reader for reader in net.blocks[number + 1 :] if mine[reader.reads].any()
               or (reader.others is not None and mine[reader.others].any())]  # fmt: skip
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


def _candidates(block: Block, packed: Ids, few: bool) -> Iterator[Ids]:
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


def _packed(net: Network, sizes: list[int]) -> tuple[list[int], int]:
    """First fit, in order of time: a block's memory is free after its last reader."""
    owner = np.full(net.units, -1, np.int64)
    made = [number for number, block in enumerate(net.blocks) if not block.adds]  # when
    for home, number in enumerate(made):
        owner[units_of(net.blocks[number])] = home
    last = list(made)
    for number, block in enumerate(net.blocks):
        for reads in (block.reads, block.others, units_of(block)):
            if reads is not None:
                for source in np.unique(owner[reads]):
                    if source >= 0:
                        last[source] = max(last[source], number)
    for signal in net.outputs:
        for source in np.unique(owner[flat(signal)]):
            if source >= 0:
                last[source] = len(net.blocks)
    bases: list[int] = []
    top = net.input_units
    for home, size in enumerate(sizes):
        busy = sorted((bases[i], bases[i] + sizes[i]) for i in range(home) if last[i] >= made[home])
        begin = net.input_units
        for low, high in busy:
            if low - begin >= size:
                break
            begin = max(begin, high)
        bases.append(begin)
        top = max(top, begin + size)
    return bases, top
