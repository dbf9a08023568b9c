"""A PHEW-like selection: the connections that random walks in both directions use.

After Patil & Dovrolis, "PHEW: Constructing Sparse Networks that Learn Fast and Generalize Well
Without Any Training Data" (2021): walks start at the input and at the output units in turn, and
choose each connection at random in proportion to its magnitude, with replacement.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from ..graph.trellis import Trellis
from .chains import Choices, Walk, rotation
from .consistent import add_singles, split, wires_taken
from .layers import Floats, Layered, layered
from .method import Problem, WalkMethod, register_method

# connections, their ends, running sums of magnitudes
Ladder = tuple["array[int]", "array[int]", "array[float]"]
PATIENCE = 100  # walks that may add nothing before unsuccessful and successful ones are compared


@register_method("phew")
@dataclass(frozen=True, kw_only=True)
class Phew(WalkMethod):
    """Keep the connections that random walks in both directions use.

    Each step of a walk is drawn in proportion to saliency, with replacement. The seed decides the
    result, with ``stochastic=True`` or without. For layered networks. It has no options of its own.

    >>> import trellis
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    >>> trellis.prune(model, torch.zeros(1, 8), keep=8, method=Phew(), seed=1).kept
    8
    """

    sampling = "always"

    def walk(self, problem: Problem, budget: int) -> dict[str, Tensor]:
        return phew(problem.net, problem.saliency, budget, seed=problem.seed)


def phew(
    net: Trellis, saliency: Mapping[str, Tensor], budget: int, *, seed: int = 0
) -> dict[str, Tensor]:
    """Return masks of ``budget`` connections by random walks.

    Walks start from input units (forward) and output units (backward) in turn, in a seeded order.
    Near a full budget, most walks find nothing new. Once more walks add nothing than something,
    further walks are drawn without replacement, as in stochastic `chains`, so that the selection
    ends. The rest of the budget and parameters without ``saliency`` are handled as in `chains`.

    >>> from trellis.graph.trellis import trace
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    >>> saliency = {"0.weight": torch.tensor([[1., 0.], [0., 0.]]), "1.weight": torch.ones(1, 2)}
    >>> masks = phew(trace(mlp, torch.zeros(1, 2)), saliency, 2)
    >>> sum(int(mask.sum()) for mask in masks.values())
    2
    """
    found = layered(net)
    magnitudes = found.flat(saliency, missing=1.0)
    taken = wires_taken(found, saliency)
    room, stalled = Wander(found, magnitudes, taken, seed).walks(budget)
    if stalled:
        choices = Choices(found, magnitudes, seed=seed)
        room = Walk(choices, taken).rounds(rotation(found.units[0], seed), room)
    add_singles(net, found, taken, magnitudes, room)
    return split(found, taken, saliency)


class Wander:
    """Random walks with replacement. ``taken`` has one byte per connection, and is shared."""

    def __init__(self, net: Layered, magnitudes: Floats, taken: bytearray, seed: int) -> None:
        self.net, self.magnitudes, self.taken = net, magnitudes, taken
        self.seed = seed
        self.generator = torch.Generator().manual_seed((seed ^ 0x5DEECE66) & 0xFFFFFFFF)
        self.draws: list[float] = []
        self.rows: dict[tuple[bool, int, int], Ladder] = {}

    def walks(self, room: int) -> tuple[int, bool]:
        """Walk until the next walk exceeds the budget.

        Returns:
            The number of connections left to take, and whether walks stopped adding connections.
        """
        fruitless = fruitful = 0
        for forward, unit in self.starts():  # empty if nothing connects input and output
            if room <= 0 or fruitless > fruitful + PATIENCE:
                break
            new = {c for c in self.walk(forward, unit) if not self.taken[c]}
            if len(new) > room:
                return room, False
            for connection in new:
                self.taken[connection] = 1
            room -= len(new)
            if new:
                fruitful += 1
            else:
                fruitless += 1
        return room, room > 0

    def starts(self) -> Iterator[tuple[bool, int]]:
        """Yield (forward, unit): input and output units in turn, if they are on a path."""
        first, last = self.net.layers[0], self.net.layers[-1]
        inputs = [u for u in rotation(first.tails, self.seed) if len(first.row(u)[0])]
        reached = last.seen(last.reached) & last.useful
        outputs = [u for u in rotation(last.heads, self.seed + 1) if reached[u]]
        for pair in zip(cycle(inputs), cycle(outputs), strict=False):
            yield True, pair[0]
            yield False, pair[1]

    def walk(self, forward: bool, unit: int) -> list[int]:
        """Return the connections of one walk through all layers."""
        depth = len(self.net.layers)
        found = []
        for level in range(depth) if forward else reversed(range(depth)):
            connections, ends, ladder = self.row(forward, level, unit)
            place = bisect_right(ladder, self.draw() * ladder[-1], 0, len(ladder) - 1)
            found.append(connections[place])
            unit = ends[place]
        return found

    def row(self, forward: bool, level: int, unit: int) -> Ladder:
        """Return the connections at a unit, their ends, and the running sum of magnitudes."""
        key = forward, level, unit
        if key not in self.rows:
            layer = self.net.layers[level]
            connections, ends = layer.row(unit) if forward else layer.column(unit)
            ladder = np.cumsum(self.magnitudes[connections])
            if not ladder[-1] > 0:  # all are zero: equal probabilities
                ladder = np.arange(1.0, len(connections) + 1)
            self.rows[key] = (
                array("i", connections.tobytes()),
                array("i", ends.tobytes()),
                array("d", ladder.tobytes()),
            )
        return self.rows[key]

    def draw(self) -> float:
        """Return a uniform draw."""
        if not self.draws:
            block = torch.rand(4096, generator=self.generator, dtype=torch.float64)
            self.draws = block.tolist()
        return self.draws.pop()
