"""Scores: how much weight runs through each connection."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..trace.steps import Contract
from ..trace.trellis import Trellis
from .algebra import MaxTimes, SumTimes, outer, paired_rows
from .backward import backward
from .best import BestPaths, Use
from .machine import CPU
from .propagate import Propagation
from .scatter import draw, give

# Beyond this many uses per connection, positions at padded borders are told apart no more.
COARSE = 32


def best_path(net: Trellis, saliency: Mapping[str, Tensor], *, exact: bool = False) -> BestPaths:
    """For each connection, the largest product of ``saliency`` along a path through it.

    ``saliency`` is float32 in the parameters' shapes; its absolute value counts. Scores are
    scaled by one power of two for the whole network. In networks whose weights
    are used in very many places (images of full size) borders are treated like the interior
    unless ``exact``: then scores are upper bounds.
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
    """The best path product through each head of a contraction, (B, N), in units of 2 to the
    ``top``. ``merged``: tails and heads were each taken at their best position."""
    d, g = run.depends[step.out.id], run.changes[step.out.id]
    power = run.exponents.get(step.out.id, 0) + run.back_exponents.get(step.out.id, 0) - top
    best = d.amax(1) * g.amax(1) if merged else (d * g).amax(1)
    return (best * 2.0 ** max(power, -1000)).expand(step.weight.shape[:2])


def path_sum(
    net: Trellis, saliency: Mapping[str, Tensor], device: torch.device = CPU
) -> dict[str, Tensor]:
    """For each connection, the summed product of ``saliency`` over all paths through it.

    SynFlow's score, in float64, rounded to float32 so that the order in which sums are taken
    leaves no trace. On another ``device`` than the CPU a few in a billion round differently.
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
