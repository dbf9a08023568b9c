"""Scores: the best or summed path product through each connection, and best paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..graph.steps import Contract, Weight
from ..graph.trellis import Trellis, names_in
from .algebra import MaxTimes, SumTimes, outer, paired_rows
from .kernels import CPU, MatrixLayout, count, is_cpu, matrix_layout, reaching, where
from .liveness import draw, give, spread
from .propagate import Propagation, backward

# Scores of best paths, worked out where they are asked for.


SLACK = 2.0**-20  # how far rounding may carry a score above its bound, relative to it,
TINY = 2.0**-80  # and where floats are so small that they lose digits


@dataclass(frozen=True, eq=False)
class Use:
    """Describe a contraction that uses a parameter.

    ``w`` (B, N, K) is its weight, ``x`` (B, R, K) the message to its tails and ``g`` (B, R, N) the
    message from its heads. No connection to a head scores more than ``bound`` (B, N), except for
    rounding.
    """

    weight: Weight
    w: Tensor
    x: Tensor
    g: Tensor
    bound: Tensor

    def in_memory(self, how: MatrixLayout) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weight in its parameter's layout (B, rows, columns), with its factors.

        These are the factors of its columns and of its rows, (B, R, ...).
        """
        b, n, k = self.w.shape
        x, g = self.x.expand(b, -1, k), self.g.expand(b, -1, n)
        return (self.w.mT, g, x) if how.transposed else (self.w, x, g)


class BestPaths(Mapping[str, Tensor]):
    """Scores ``{parameter name: tensor}``, each computed on access.

    In a large model only the best few scores matter, and memory for all of them would cost more
    than the arithmetic. ``finite`` says whether the weights of all paths are finite.
    """

    def __init__(
        self, net: Trellis, uses: list[Use], device: torch.device, *, finite: bool = True
    ) -> None:
        self.net, self.device, self.finite = net, device, finite
        self.uses: dict[str, list[Use]] = {name: [] for name in net.connections}
        self._scores: dict[str, Tensor] = {}
        for use in uses:
            for name in names_in(use.weight):
                self.uses[name].append(use)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._scores:
            found: dict[str, Tensor] = {}
            for use in self.uses[name]:
                spread(self.net, use.weight, use.w, use.x, use.g, found)
            none = torch.zeros((), device=self.device).expand(self.net.connections[name])
            self._scores[name] = found.get(name, none)
        return self._scores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.uses)

    def __len__(self) -> int:
        return len(self.uses)

    @property
    def unread(self) -> list[str]:
        """List the parameters that no contraction reached by an input uses whole.

        Parts of them may have no scores.
        """
        net = self.net
        return [
            name
            for name, mine in self.uses.items()
            if not any(matrix_layout(net, use.weight) is not None for use in mine)
        ]

    @property
    def nothing(self) -> bool:
        """Return whether the product along every path is zero."""
        return all(top <= TINY for top in self.tops.values())

    @cached_property
    def tops(self) -> dict[str, float]:
        """Return an upper bound of the scores of each parameter, rounding included."""
        uses = [use for mine in self.uses.values() for use in mine]
        if not uses:
            return dict.fromkeys(self.uses, 0.0)
        # Stacked, so that there is one transfer from the GPU.
        bounds = iter(torch.stack([use.bound.amax() for use in uses]).tolist())
        return {
            name: max((next(bounds) for _ in mine), default=0.0) * (1 + SLACK) + TINY
            for name, mine in self.uses.items()
        }

    def samples(self, stride: int, many: int) -> list[Tensor]:
        """Return every ``stride``-th score, up to rounding, including the ``many`` best of them.

        On a CPU, parameters without any of these are left out.
        """
        tops = self.tops
        names = sorted(tops, key=lambda name: -tops[name])
        found: list[Tensor] = []
        for name in names:  # what is left has no score above the top of the next
            if is_cpu(self.device) and sum(count(some > tops[name]) for some in found) >= many:
                break
            found.append(self.sample(name, stride))
        return found

    def sample(self, name: str, stride: int) -> Tensor:
        """Return every ``stride``-th score, up to rounding."""
        ways = self._ways(name)
        if ways is None:
            return self[name].reshape(-1)[::stride]
        row, column = self._sampled(ways[0][1], stride)
        best = torch.zeros(len(row), device=self.device)
        for use, how in ways:
            w, x, g = use.in_memory(how)
            x, g = (t.permute(1, 0, 2).reshape(t.shape[1], -1) for t in (x, g))
            factor = (x[:, column] * g[:, row]).amax(0)
            torch.maximum(best, (w.reshape(-1)[::stride] * factor).abs_(), out=best)
        return best

    def _sampled(self, how: MatrixLayout, stride: int) -> tuple[Tensor, Tensor]:
        """Return the rows and columns of every ``stride``-th entry of consecutive matrices."""
        key = "sampled", how.batch, how.rows, how.columns, stride, self.device
        if key not in self.net.cache:
            size = how.batch * how.rows * how.columns
            places = torch.arange(0, size, stride, device=self.device)
            row = places // how.columns
            column = places % how.columns + row // how.rows * how.columns
            self.net.cache[key] = row, column
        found: tuple[Tensor, Tensor] = self.net.cache[key]
        return found

    def at_least(self, name: str, floor: float) -> tuple[Tensor, Tensor]:
        """Return the flat places, ascending, and the values of scores of at least ``floor``."""
        none = torch.zeros(0, device=self.device)
        if self.tops[name] < floor:
            return none.long(), none
        ways = self._ways(name)
        if ways is None:
            places = where(self[name] >= floor)
            return places, self[name].reshape(-1)[places]
        how = ways[0][1]
        low = floor - abs(floor) * SLACK - TINY
        rows = torch.zeros(how.batch, how.rows, dtype=torch.bool, device=self.device)
        for use, way in ways:
            heads = use.bound >= low
            # Where rows are tails, heads that reach say only that some row may.
            rows |= heads.any(1, keepdim=True) if way.transposed else heads
        found = []
        for i in rows.any(1).nonzero()[:, 0].tolist():
            factors = []
            for use, way in ways:
                w, x, g = use.in_memory(way)
                factors.append((x[i], g[i]))
            some = None if bool(rows[i].all()) else where(rows[i])
            places, values = reaching(w[i], factors, floor, some)
            found.append((places + i * how.rows * how.columns, values))
        if not found:
            return none.long(), none
        return torch.cat([p for p, _ in found]), torch.cat([v for _, v in found])

    def _ways(self, name: str) -> list[tuple[Use, MatrixLayout]] | None:
        """Return all uses with their layouts, if these are equal.

        None if they differ, or if the scores are already computed.
        """
        found: list[tuple[Use, MatrixLayout]] = []
        for use in self.uses[name]:
            how = matrix_layout(self.net, use.weight)
            if how is None or name in self._scores:
                return None
            found.append((use, how))
        shapes = {(how.batch, how.rows, how.columns) for _, how in found}
        return found if len(shapes) == 1 else None


# With more uses per connection than this, positions at padded borders are no longer distinguished.
COARSE = 32


def best_path(net: Trellis, saliency: Mapping[str, Tensor], *, exact: bool = False) -> BestPaths:
    """Compute, for each connection, the largest product of ``saliency`` along a path through it.

    ``saliency`` is float32 in the parameters' shapes; its absolute value counts. Scores are scaled
    by one power of two for the whole network. If weights are used in very many places (images of
    full size), borders are treated like the interior, and scores are upper bounds. ``exact``
    switches that off.
    """
    net = net.wired
    device = next(iter(saliency.values())).device
    algebra = MaxTimes(limit=1 << 62) if exact else MaxTimes()
    coarse = not exact and net.uses > COARSE * net.total and net.uses > 1 << 24

    def weights(step: Contract) -> Tensor:
        return draw(net, step.weight, saliency)

    run = Propagation(net, algebra, weights, wires=True, coarse=coarse, device=device)
    backward(run.forward())
    powers = {
        step.out.id: run.exponents.get(step.x.id, 0) + run.back_exponents.get(step.out.id, 0)
        for step in net.contractions
        if step.x.id in run.depends and step.out.id in run.changes
    }
    top = max(powers.values(), default=0)
    uses = []
    for step in net.contractions:
        if step.out.id not in powers:
            continue
        tails, heads = run.depends[step.x.id], run.changes[step.out.id]
        x, g = paired_rows(algebra, tails, heads, step.x.shape[1], run.rows)
        g = g * 2.0 ** max(powers[step.out.id] - top, -1000)
        uses.append(Use(step.weight, weights(step), x, g, bound(run, step, top, x.shape[1] == 1)))
    return BestPaths(net, uses, device, finite=run.finite)


def bound(run: Propagation, step: Contract, top: int, merged: bool) -> Tensor:
    """Return the best path product through each head of a contraction, (B, N), divided by 2^top.

    With ``merged``, tails and heads are each taken at their best position.
    """
    d, g = run.depends[step.out.id], run.changes[step.out.id]
    power = run.exponents.get(step.out.id, 0) + run.back_exponents.get(step.out.id, 0) - top
    best = d.amax(1) * g.amax(1) if merged else (d * g).amax(1)
    return (best * 2.0 ** max(power, -1000)).expand(step.weight.shape[:2])


def path_sum(
    net: Trellis, saliency: Mapping[str, Tensor], device: torch.device = CPU
) -> dict[str, Tensor]:
    """Compute, for each connection, the summed product of ``saliency`` over all paths through it.

    This is SynFlow's score. It is computed in float64 and rounded to float32, so that the order of
    summation has no effect. On a ``device`` other than the CPU, a few in a billion are rounded
    differently.
    """
    net = net.wired
    double = {name: s.detach().to(device, torch.float64) for name, s in saliency.items()}
    algebra = SumTimes()

    def weights(step: Contract) -> Tensor:
        return draw(net, step.weight, double)

    run = backward(Propagation(net, algebra, weights, wires=True, device=device).forward())
    scores: dict[str, Tensor] = {}
    for step in net.contractions:
        x, g = run.depends.get(step.x.id), run.changes.get(step.out.id)
        if x is None or g is None:
            continue
        values = outer(algebra, x, g, step.x.shape[1]) * weights(step)
        give(net, step.weight, values, scores, torch.add, "sum")
    top = max((float(s.max()) for s in scores.values()), default=1.0) or 1.0
    return {
        name: (scores.pop(name) / top).to(torch.float32)
        if name in scores
        else torch.zeros(shape, device=device)
        for name, shape in net.connections.items()
    }
