"""What a unit would take first: its uses, best first.

A score is |W_ij| (local) or |W_ij| times what lies ahead of j (global). Sampling without
replacement in proportion to a score is an exponential race: give every use a clock that rings
after Exp(1)/score, and take uses in the order in which they ring. At any moment the next to
ring, among whatever is left, is each with probability in proportion to its score, whoever
removed the others. So the stochastic walk is the deterministic one on keys score/Exp(1).
"""

from __future__ import annotations

import numpy as np
import torch

from .layers import Floats, Ints, Layered


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
