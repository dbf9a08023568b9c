"""Which places along every axis of every value stay, and why.

Live units stay. From there the set can only grow: operations tie axes together (a sum needs both
its sides, a reshape whole rectangles, a norm all that it reads) until nothing changes. The result
is the smallest such set, so compaction removes as much as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .reading import Network, Value

Codes = NDArray[np.int32]
Places = NDArray[np.bool_]
GONE, ALIVE = 0, 1  # codes; from 2 up, a reason
NEEDED = "an axis cannot be empty"


class AxisPlaces:
    """One code per place along each axis: gone, live, or the reason why it stays."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.reasons: list[str] = ["", ""]
        self.codes: dict[str, list[Codes]] = {}
        self.changed: set[str] = set()
        for name, value in network.values.items():
            self.codes[name] = self._first(value)
            self.changed.add(name)

    def _first(self, value: Value) -> list[Codes]:
        codes = [np.zeros(size, np.int32) for size in value.shape]
        if value.live is not None and bool(value.live.any()):
            live = value.live.numpy()
            for axis, code in enumerate(codes):
                others = tuple(a for a in range(live.ndim) if a != axis)
                code[live.any(axis=others)] = ALIVE
        for axis, size in enumerate(value.shape):
            if size == 1:
                codes[axis][:] = ALIVE
        return codes

    def reason(self, why: str) -> int:
        if why not in self.reasons:
            self.reasons.append(why)
        return self.reasons.index(why)

    def code(self, name: str, axis: int) -> Codes:
        return self.codes[name][axis]

    def places(self, name: str, axis: int) -> Places:
        found: Places = self.codes[name][axis] > GONE
        return found

    def index(self, name: str, axis: int) -> list[int]:
        found: list[int] = np.flatnonzero(self.codes[name][axis]).tolist()
        return found

    def size(self, name: str) -> list[int]:
        return [int((code > GONE).sum()) for code in self.codes[name]]

    def whole(self, name: str) -> bool:
        return all(bool((code > GONE).all()) for code in self.codes[name])

    def add(self, name: str, axis: int, codes: Codes, why: str) -> None:
        """Let places stay.

        A place that is live elsewhere stays here for the reason ``why``. A place that stays
        elsewhere for a reason stays here for the same reason.
        """
        have = self.codes[name][axis]
        fresh = (codes > GONE) & (have == GONE)
        if not fresh.any():
            return
        have[fresh] = np.where(codes[fresh] == ALIVE, self.reason(why), codes[fresh])
        self.changed.add(name)

    def fill(self, name: str, axis: int, why: str) -> None:
        """Let the whole axis stay."""
        size = len(self.codes[name][axis])
        self.add(name, axis, np.full(size, ALIVE, np.int32), why)

    def complete(self) -> None:
        """Keep at least one place along every axis of a value that stays at all."""
        for name, codes in self.codes.items():
            if any(len(code) > 1 and code.any() for code in codes):
                for axis, code in enumerate(codes):
                    if len(code) and not code.any():
                        first = np.zeros_like(code)
                        first[0] = ALIVE
                        self.add(name, axis, first, NEEDED)

    def tie(self, ends: Sequence[tuple[str, int]], why: str) -> None:
        """Let what stays at one end stay at all ends."""
        if len(ends) < 2:
            return
        for name, axis in ends[1:]:
            self.add(*ends[0], self.codes[name][axis], why)
        for name, axis in ends[1:]:
            self.add(name, axis, self.codes[ends[0][0]][ends[0][1]], why)


def product(codes: Iterable[Codes]) -> Codes:
    """Return the codes of a rectangle, row-major: gone if one side is, else the larger code.

    >>> product([np.array([1, 0], np.int32), np.array([1, 2], np.int32)])
    array([1, 2, 0, 0], dtype=int32)
    """
    flat = np.ones(1, np.int32)
    for code in codes:
        pair = np.maximum(flat[:, None], code[None])
        flat = np.where((flat[:, None] > GONE) & (code[None] > GONE), pair, GONE).reshape(-1)
    return flat.astype(np.int32)


def projections(flat: Codes, sizes: Sequence[int]) -> list[Codes]:
    """Project the codes of a rectangle on each axis.

    >>> [p.tolist() for p in projections(np.array([1, 0, 0, 0], np.int32), (2, 2))]
    [[1, 0], [1, 0]]
    """
    box = flat.reshape(tuple(sizes))
    last = np.iinfo(np.int32).max
    box = np.where(box > GONE, box, last)
    found = []
    for axis in range(box.ndim):
        others = tuple(a for a in range(box.ndim) if a != axis)
        least = box.min(axis=others) if others else box  # the first reason
        found.append(np.where(least == last, GONE, least).astype(np.int32))
    return found
