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

from .choices import Choices

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
