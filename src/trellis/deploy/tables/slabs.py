"""Cut wide networks into slabs: the reader of one part of a block follows that part at once.

Where a block and its reader fall into parts that have nothing to do with each other (the heads of
a graph network, the groups of a convolution), they are computed part after part. Memory is then
needed for one part alone, and stays near the processor. A layer that reads all parts is summed up
as they come.
"""

from __future__ import annotations

import numpy as np

from .activation import NONE
from .network import Flags, Ids, Network, Reals, RowBlock

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
