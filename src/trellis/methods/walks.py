"""Algorithm 1's walk: chains of connections from input units to the output.

At each unit the walk takes the best free connection. A unit is *open* while it has one, or leads
to an open unit. A unit without free connections passes the chain on, through its best connection to
an open head. Therefore every chain from an open input unit adds at least one connection and reaches
the output.

Taken connections stay taken and closed units stay closed. Rows are sorted best first, so two
pointers per unit only move forward. All walks together cost no more than the uses that they visit.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

import numpy as np
import torch

from .layers import Floats, Ints, Layered

# The order in which a unit takes its uses: best first.
#
# A score is |W_ij| (local), or |W_ij| times the weight of the paths ahead of j (global). Sampling
# without replacement in proportion to a score is an exponential race. Every use gets a clock that
# rings after Exp(1)/score, and uses are taken in that order. At any moment, the next to ring among
# the free uses is drawn in proportion to its score, however the others were taken. So the
# stochastic walk is the deterministic one on keys score/Exp(1).


def log(values: Floats) -> Floats:
    """Return the logarithm; -∞ for 0, without a warning. Avoiding one is faster than silencing it.

    >>> log(np.array([0.0, 1.0])).tolist()
    [-inf, 0.0]
    """
    if values.all():
        return np.log(values)
    with np.errstate(divide="ignore"):
        return np.log(values)


class Choices:
    """The uses that leave each unit, in the order in which a walk takes them.

    Args:
        net: The layered network.
        magnitudes: The saliency of each connection.
        ahead: Per level, logarithms of the weight of the paths ahead of each unit; None for local.
        seed: Seed of the exponential race; None to take the largest score first.

    Clocks are seeded for each unit, so that they do not depend on the order of calls.
    """

    def __init__(
        self,
        net: Layered,
        magnitudes: Floats,
        *,
        ahead: list[Floats] | None = None,
        seed: int | None = None,
    ) -> None:
        self.net, self.magnitudes, self.ahead, self.seed = net, magnitudes, ahead, seed
        self.generator = torch.Generator()
        self.bases = np.concatenate([[0], np.cumsum(net.units)]).tolist()

    def keys(self, level: int, unit: int, connections: Ints, heads: Ints) -> Floats:
        """Return one key per use that leaves a unit of ``level``; the largest is the best."""
        keys: Floats = self.magnitudes[connections]
        if self.ahead is None and self.seed is None:
            return keys
        keys = log(keys)
        if self.ahead is not None:
            keys += self.ahead[level][heads]
        if self.seed is not None:
            keys -= np.log(self.clocks(self.bases[level] + unit, len(keys)))
        return keys

    def clocks(self, unit: int, count: int) -> Floats:
        """Return draws from Exp(1).

        torch seeds its CPU generator from 32 bits. A multiplier without small factors spreads
        (seed, unit) over them.
        """
        assert self.seed is not None
        self.generator.manual_seed((self.seed * 0x9E3779B1 + unit * 0x85EBCA77) & 0xFFFFFFFF)
        uniform = torch.rand(count, generator=self.generator, dtype=torch.float64).numpy()
        clocks: Floats = np.maximum(-np.log1p(-uniform), 1e-300)
        return clocks

    def row(self, level: int, unit: int) -> tuple[Ints, Ints]:
        """Return the uses that leave a unit, as (connections, heads), best first.

        Ties are broken by connection, then head.
        """
        connections, heads = self.net.layers[level].row(unit)
        order = np.argsort(-self.keys(level, unit, connections, heads), kind="stable")
        return connections[order], heads[order]


Row = tuple["array[int]", "array[int]"]  # compact, and faster to index than numpy


class Walk:
    """Chains of connections. ``taken`` has one byte per connection, and is shared with the caller.

    Units of all levels have consecutive numbers: the input's first, the output's last.
    """

    def __init__(self, choices: Choices, taken: bytearray) -> None:
        self.choices, self.taken = choices, taken
        self.bases = choices.bases
        units = self.bases[-1]
        self.rows: list[Row | None] = [None] * units  # connections, best first, and their heads
        self.untaken = [0] * units  # all before this place of the row are taken
        self.passing = [0] * units  # all heads before this place of the row are closed
        self.closed = bytearray(units)  # units known to be closed, as those of the output are
        self.closed[self.bases[-2] :] = b"\1" * choices.net.units[-1]
        self.rows[self.bases[-2] :] = [(array("i"), array("i"))] * choices.net.units[-1]

    def load(self, unit: int) -> Row:
        """Sort the uses that leave a unit, and remember them."""
        level = bisect_right(self.bases, unit) - 1
        connections, heads = self.choices.row(level, unit - self.bases[level])
        heads = heads + self.bases[level + 1]
        row = array("i", connections.tobytes()), array("i", heads.tobytes())
        self.rows[unit] = row
        return row

    def rounds(self, rotation: list[int], room: int) -> int:
        """Walk from each input unit in turn, in rounds, while chains fit. Skip closed units.

        Returns:
            The number of connections left to take. It is above 0 if the next chain exceeds the
            budget, or if no free connection is left.

        A unit passes the chain to its best head that is not known to be closed. If that head
        proves closed, the chain returns. After a step that took a connection this is not needed:
        everything behind a closed unit is taken, so any way to the output adds nothing.
        """
        taken, closed, rows = self.taken, self.closed, self.rows
        untaken, passing = self.untaken, self.passing
        added: list[int] = []
        passed: list[int] = []  # units that passed the chain on since it last took a connection
        while rotation and room > 0:
            for start in rotation:
                unit = start
                added = []
                while True:
                    row, heads = rows[unit] or self.load(unit)
                    place, end = untaken[unit], len(row)
                    while place < end and taken[row[place]]:
                        place += 1
                    untaken[unit] = place
                    if place < end:
                        added.append(row[place])
                        taken[row[place]] = 1
                        unit = heads[place]
                        if closed[unit]:
                            break
                        passed.clear()
                        continue
                    place = passing[unit]
                    while place < end and closed[heads[place]]:
                        place += 1
                    passing[unit] = place
                    if place < end:
                        passed.append(unit)
                        unit = heads[place]
                        continue
                    closed[unit] = 1
                    if not passed:
                        break
                    unit = passed.pop()
                passed.clear()
                room -= len(added)
                if room <= 0:
                    break
            rotation = [unit for unit in rotation if not closed[unit]]
        if room < 0:  # the last chain exceeded the budget: undo it
            for connection in added:
                taken[connection] = 0
            room += len(added)
        return room
