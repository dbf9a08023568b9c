"""The paper's Algorithm 1: keep whole chains of connections, from the input to the output.

At each unit the walk takes the best free connection. A unit is *open* while it has one, or leads
to an open unit. A unit without free connections passes the chain on, through its best connection to
an open head. Therefore every chain from an open input unit adds at least one connection and reaches
the output.

Taken connections stay taken and closed units stay closed. Rows are sorted best first, so two
pointers per unit only move forward. All walks together cost no more than the uses that they visit.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import TrellisError
from ..graph.trellis import Trellis
from .consistent import add_singles, split, wires_taken
from .layers import Floats, Ints, Layer, Layered, layered
from .method import Problem, WalkMethod, register_method

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


# The method.


@register_method("chains")
@dataclass(frozen=True, kw_only=True)
class Chains(WalkMethod):
    """Keep whole chains from input to output, the paper's Algorithm 1. For layered networks.

    From each input unit in turn, a chain takes the best connection that is still free at each unit.
    With ``stochastic=True`` it draws one instead, in proportion to the score.

    Args:
        surrogate: "local": the score of a step is its own saliency. "global": its saliency times
            the weight of all paths ahead (Eq. 4 and 5).
        inverse_alpha: 1/α of Eq. 5, for the global surrogate. 1 sums all paths ahead (Eq. 4);
            infinity takes the best one.
        row_normalize: Divide the saliencies of the connections that leave a unit by their sum
            first. For the global surrogate.

    >>> import trellis
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    >>> method = Chains(surrogate="global", inverse_alpha=10)
    >>> trellis.prune(model, torch.zeros(1, 8), keep=8, method=method).kept
    8
    """

    surrogate: Literal["local", "global"] = "local"
    inverse_alpha: float = 1.0
    row_normalize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        alpha = self.inverse_alpha
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not alpha >= 1:
            raise TrellisError(
                f"expected a number from 1 to infinity for inverse_alpha, got {alpha!r}"
            )

    def walk(self, problem: Problem, budget: int) -> dict[str, Tensor]:
        return chains(
            problem.net,
            problem.saliency,
            budget,
            surrogate=self.surrogate,
            inverse_alpha=self.inverse_alpha,
            row_normalize=self.row_normalize,
            stochastic=problem.stochastic,
            seed=problem.seed,
        )


# Eq. 4 and 5: the weight of all paths from a unit to the outputs.
#
# Ŵ_jk is the l_p norm, p = 1/alpha, of the products of magnitudes along all paths from unit j to
# output unit k: at p = 1 the sum over paths (Eq. 4), at p = ∞ the best of them. By recursion
# over layers (Eq. 5), Ŵ_ik = (Σ_j (|W_ij| Ŵ_jk)^p)^(1/p).
#
# Everything is in the log domain. A layer is one matrix product of scaled exponentials. Entries
# that underflow there are summed again, exactly.


TINY = 1e-200  # products of scaled factors below this may have lost terms to underflow
BLOCK = 4_000_000  # numbers held at a time
DECIMALS = 9  # of a logarithm: hides differences between thread counts in the order of a sum


def ahead(
    net: Layered,
    magnitudes: Floats,
    inverse_alpha: float,
    *,
    total: bool,
    row_normalize: bool = False,
) -> list[Floats]:
    """Return log max_k Ŵ_jk for each unit j of each level 1..L, or log Σ_k Ŵ_jk with ``total``.

    The result is -∞ where non-zero connections reach no output. ``row_normalize`` first divides the
    connections that leave a unit by their sum. Input units are not normalised: a common factor
    changes no choice.

    >>> import torch
    >>> from trellis.graph.trellis import trace
    >>> from trellis.methods.layers import layered
    >>> net = layered(trace(torch.nn.Sequential(*[torch.nn.Linear(2, 2)] * 2), torch.zeros(1, 2)))
    >>> [np.exp(x).round(6).tolist() for x in ahead(net, np.arange(1.0, 5), 1.0, total=True)]
    [[4.0, 6.0], [1.0, 1.0]]
    """
    p = inverse_alpha
    one = p == (1.0 if total else math.inf)  # then the outputs can be joined from the start
    columns = 1 if one else len(net.outputs)
    width = max(1, BLOCK // max(layer.largest for layer in net.layers))
    found = [np.full(n, -np.inf) for n in net.units[1:]]
    with np.errstate(divide="ignore", invalid="ignore"):
        norms = [_norms(layer, magnitudes) if row_normalize else None for layer in net.layers]
        for start in range(0, columns, width):
            value = _outputs(net, start, min(start + width, columns), joined=one, total=total)
            for level in range(len(net.layers), 0, -1):
                into = found[level - 1]
                norm = value if p == math.inf else value / p
                summary = _logsum(norm) if total else norm.max(1)
                join = np.logaddexp if total else np.maximum
                join(into, summary, out=into)
                if level > 1:
                    layer = net.layers[level - 1]
                    value = _back(layer, magnitudes, value, p)
                    division = norms[level - 1]
                    if division is not None:
                        value -= (1.0 if p == math.inf else p) * division[:, None]
    return [np.round(x, DECIMALS) for x in found]


def _outputs(net: Layered, start: int, stop: int, *, joined: bool, total: bool) -> Floats:
    """(units of the last level, columns): 0 where a unit leads to an output, -∞ elsewhere."""
    units = net.units[-1]
    if joined:
        reads = net.outputs[net.outputs >= 0]
        counts = np.bincount(reads, minlength=units).astype(np.float64)
        return np.log(counts if total else np.minimum(counts, 1.0))[:, None]
    value = np.full((units, stop - start), -np.inf)
    for column, reads in enumerate(net.outputs[start:stop]):
        value[reads[reads >= 0], column] = 0.0
    return value


def _back(layer: Layer, magnitudes: Floats, value: Floats, p: float) -> Floats:
    """From heads (units, columns) to tails: p log Ŵ, or log Ŵ where p is infinite."""
    b, m, k, n = layer.shape
    columns = value.shape[1]
    weight = np.log(layer.values(magnitudes))  # (B, N, K)
    heads = value.reshape(b, m, n, columns)
    slots = np.empty((b, m, k, columns))
    for i in range(b):
        slots[i] = _best(weight[i], heads[i]) if p == math.inf else _sums(p * weight[i], heads[i])
    return _gather(layer, slots.reshape(-1, columns), p)


def _gather(layer: Layer, slots: Floats, p: float) -> Floats:
    """Join the slots that read a tail, for each tail."""
    first = np.array(layer.first)
    some = np.flatnonzero(first[1:] > first[:-1])  # reduceat cannot handle empty groups
    tails = np.full((layer.tails, slots.shape[1]), -np.inf)
    uses = slots[layer.slots]
    if len(some) < len(uses):
        top = np.maximum.reduceat(uses, first[some])
        if p == math.inf:
            uses = top
        else:
            top = _finite(top)
            uses = np.exp(uses - np.repeat(top, np.diff(first)[some], 0))
            uses = np.log(np.add.reduceat(uses, first[some])) + top
    tails[some] = uses
    return tails


def _sums(weight: Floats, heads: Floats) -> Floats:
    """out[m, k, c] = log Σ_n exp(weight[n, k] + heads[m, n, c])."""
    top_w = _finite(weight.max(0, keepdims=True))  # (1, K)
    top_h = _finite(heads.max(1, keepdims=True))  # (M, 1, C)
    scaled: Floats = np.exp(weight - top_w).T @ np.exp(heads - top_h)  # (M, K, C)
    out: Floats = np.log(scaled) + top_w[0, :, None] + top_h
    lost = np.argwhere(scaled < TINY) if scaled.min() < TINY else np.empty((0, 3), np.int64)
    step = max(1, BLOCK // len(weight))
    for start in range(0, len(lost), step):
        m, k, c = lost[start : start + step].T
        out[m, k, c] = _logsum(weight[:, k].T + heads[m, :, c])
    return out


def _best(weight: Floats, heads: Floats) -> Floats:
    """out[m, k, c] = max_n weight[n, k] + heads[m, n, c]."""
    m, n, columns = heads.shape
    k = weight.shape[1]
    out = np.full((m, k, columns), -np.inf)
    more = np.empty_like(out)
    for i in range(n):
        some = np.flatnonzero((heads[:, i] > -np.inf).any(0))
        if len(some) == columns:
            np.add(weight[i][:, None], heads[:, i][:, None], out=more)
            np.maximum(out, more, out=out)
        elif len(some):  # near the output most units lead to few outputs
            few = weight[i][:, None] + heads[:, i, some][:, None]
            out[:, :, some] = np.maximum(out[:, :, some], few)
    return out


def _norms(layer: Layer, magnitudes: Floats) -> Floats:
    """Per tail, the logarithm of the sum of the connections that leave it; 0 if that is zero."""
    useful = np.where(layer.useful, 0.0, -np.inf)[:, None]
    return _finite(_back(layer, magnitudes, useful, 1.0)[:, 0])


def _logsum(values: Floats) -> Floats:
    """log Σ exp over the last dimension."""
    top = _finite(values.max(-1, keepdims=True))
    out: Floats = np.log(np.exp(values - top).sum(-1)) + top[..., 0]
    return out


def _finite(values: Floats) -> Floats:
    return np.where(np.isneginf(values), 0.0, values)


def chains(
    net: Trellis,
    saliency: Mapping[str, Tensor],
    budget: int,
    *,
    surrogate: Literal["local", "global"] = "local",
    inverse_alpha: float = 1.0,
    row_normalize: bool = False,
    stochastic: bool = False,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Return masks of ``budget`` connections, by chains from the input units in a seeded order.

    At unit i, a chain takes the free connection to unit j of largest |W_ij| (local) or
    |W_ij| · max_k Ŵ_jk (global, see `ahead`). With ``stochastic`` it draws one in proportion to
    |W_ij| or |W_ij| · Σ_k Ŵ_jk, without replacement. |W| is ``saliency``: 0 or more, in the
    parameters' shapes. Parameters without saliency are wires: always kept, never counted, with
    weight 1.

    A chain that exceeds the budget is not started. Single connections between live units fill the
    rest, largest saliency first. Fewer than ``budget`` are kept only if no single connection can be
    added. For layered networks only.

    >>> from trellis.graph.trellis import trace
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    >>> saliency = {"0.weight": torch.tensor([[1., 4.], [3., 2.]]), "1.weight": torch.ones(1, 2)}
    >>> masks = chains(trace(mlp, torch.zeros(1, 2)), saliency, 4)
    >>> masks["0.weight"].int().tolist(), masks["1.weight"].int().tolist()
    ([[0, 1], [1, 0]], [[1, 1]])
    """
    if surrogate not in ("local", "global"):
        raise TrellisError(f'surrogate={surrogate!r}: give "local" or "global"')
    if not inverse_alpha >= 1:
        raise TrellisError(f"inverse_alpha={inverse_alpha!r}: give a number from 1 up to math.inf")
    found = layered(net)
    magnitudes = found.flat(saliency, missing=1.0)
    scores = None
    if surrogate == "global":
        scores = ahead(
            found, magnitudes, inverse_alpha, total=stochastic, row_normalize=row_normalize
        )
    choices = Choices(found, magnitudes, ahead=scores, seed=seed if stochastic else None)
    taken = wires_taken(found, saliency)
    room = Walk(choices, taken).rounds(rotation(found.units[0], seed), budget)
    add_singles(net, found, taken, magnitudes, room)
    return split(found, taken, saliency)


def rotation(units: int, seed: int) -> list[int]:
    """Return the order of the input units."""
    generator = torch.Generator().manual_seed(seed & 0xFFFFFFFF)
    order: list[int] = torch.randperm(units, generator=generator).tolist()
    return order
