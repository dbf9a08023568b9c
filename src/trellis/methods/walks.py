"""Algorithm 1's walk: chains of connections from input units to the output.

At a unit the walk takes the best connection not yet taken. A unit is *open* while it, or a unit
that its connections lead to, has one. A unit with none untaken passes the chain on through its
best connection to an open head. So every chain that starts at an open input unit adds at least
one connection and reaches the output.

Taken connections stay taken and closed units stay closed: over rows that are sorted best first,
two pointers per unit only ever move forward, and all walks together cost no more than the uses
of what they visit.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

import numpy as np
import torch

from .layers import Floats, Ints, Layered

# What a unit would take first: its uses, best first.
#
# A score is |W_ij| (local) or |W_ij| times what lies ahead of j (global). Sampling without
# replacement in proportion to a score is an exponential race: give every use a clock that rings
# after Exp(1)/score, and take uses in the order in which they ring. At any moment the next to
# ring, among whatever is left, is each with probability in proportion to its score, whoever
# removed the others. So the stochastic walk is the deterministic one on keys score/Exp(1).


def log(values: Floats) -> Floats:
    """The logarithm; -∞ of 0, without a warning (silencing one costs more than avoiding it).

    >>> log(np.array([0.0, 1.0])).tolist()
    [-inf, 0.0]
    """
    if values.all():
        return np.log(values)
    with np.errstate(divide="ignore"):
        return np.log(values)


class Choices:
    """``ahead``: per level, logarithms of what lies ahead of each unit; None for local.
    ``seed``: None takes the largest score first, a number runs the race.

    Clocks are seeded unit by unit, so that they do not depend on who asks first.
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
        """One key per use that leaves a unit of ``level``; the largest is the best."""
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
        """Draws from Exp(1). torch seeds its CPU generator from 32 bits: a multiplier without
        small factors spreads (seed, unit) over them."""
        assert self.seed is not None
        self.generator.manual_seed((self.seed * 0x9E3779B1 + unit * 0x85EBCA77) & 0xFFFFFFFF)
        uniform = torch.rand(count, generator=self.generator, dtype=torch.float64).numpy()
        clocks: Floats = np.maximum(-np.log1p(-uniform), 1e-300)
        return clocks

    def row(self, level: int, unit: int) -> tuple[Ints, Ints]:
        """The uses that leave a unit, as (connections, heads), best first; ties by connection,
        then head."""
        connections, heads = self.net.layers[level].row(unit)
        order = np.argsort(-self.keys(level, unit, connections, heads), kind="stable")
        return connections[order], heads[order]


Row = tuple["array[int]", "array[int]"]  # compact, and quicker to index than numpy


class Walk:
    """``taken``: one byte per connection, shared with the caller.

    Units of all levels are numbered through: the input's first, the output's last.
    """

    def __init__(self, choices: Choices, taken: bytearray) -> None:
        self.choices, self.taken = choices, taken
        self.bases = choices.bases
        units = self.bases[-1]
        self.rows: list[Row | None] = [None] * units  # connections, best first, and their heads
        self.untaken = [0] * units  # before this place of the row all are taken
        self.passing = [0] * units  # before this place of the row all heads are closed
        self.closed = bytearray(units)  # units known to be closed: those of the output are
        self.closed[self.bases[-2] :] = b"\1" * choices.net.units[-1]
        self.rows[self.bases[-2] :] = [(array("i"), array("i"))] * choices.net.units[-1]

    def load(self, unit: int) -> Row:
        level = bisect_right(self.bases, unit) - 1
        connections, heads = self.choices.row(level, unit - self.bases[level])
        heads = heads + self.bases[level + 1]
        row = array("i", connections.tobytes()), array("i", heads.tobytes())
        self.rows[unit] = row
        return row

    def rounds(self, rotation: list[int], room: int) -> int:
        """Chains from each input unit in turn, round after round, while they fit; closed units
        leave the rotation. How many connections are left to take: some, if the next chain
        would take more, or if all is taken.

        To find its best open head, a unit passes the chain to its best head not known to be
        closed; from one that proves closed it comes back. Where the step before took a
        connection, there is no need to: all that lies behind a closed unit is taken, any way on
        leads to the output and adds nothing.
        """
        taken, closed, rows = self.taken, self.closed, self.rows
        untaken, passing = self.untaken, self.passing
        added: list[int] = []
        passed: list[int] = []  # units that passed the chain on since it last took something
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
        if room < 0:  # the last chain was one too many
            for connection in added:
                taken[connection] = 0
            room += len(added)
        return room
