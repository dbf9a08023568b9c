"""SynFlow: rounds of path-sum scores, each on what the last round kept.

After Tanaka et al., "Pruning neural networks without any data by iteratively conserving synaptic
flow" (2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..graph.trellis import Trellis
from ..paths.kernels import CPU
from ..paths.scores import path_sum
from .budget import Ranking, count
from .method import Problem, ScoreMethod, register_method

ROUNDS = 100


@register_method("synflow")
@dataclass(frozen=True, kw_only=True)
class SynFlow(ScoreMethod):
    """Score a connection by the sum of all path products through it, in 100 rounds.

    The number of kept connections falls geometrically from round to round. The result is consistent
    with ``consistent=True`` only. It has no options of its own.

    >>> import trellis
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    >>> trellis.prune(model, torch.zeros(1, 8), keep=8, method=SynFlow()).kept
    8
    """

    multiplies = True

    def scores(self, problem: Problem) -> Mapping[str, Tensor]:
        return synflow(problem.net, dict(problem.saliency), problem.allowed, problem.budget).scores


def synflow(
    net: Trellis,
    saliency: Mapping[str, Tensor],
    allowed: Mapping[str, Tensor] | None,
    budget: int,
    work: torch.device = CPU,
) -> Ranking:
    """Return a ranking whose best ``budget`` connections are those that iterative SynFlow keeps.

    Connections rank by the round that removed them, then by their score in that round.

    Args:
        net: The traced network.
        saliency: Importance of each connection, 0 or more.
        allowed: Connections that may be kept; None if all may.
        budget: Number of connections to keep.
        work: The device for sums. On the CPU, results are the same for models on every device.
    """
    plain = {n: s.detach().to(work) for n, s in saliency.items()}
    kept: Mapping[str, Tensor] = {
        n: torch.ones_like(s, dtype=torch.bool) if allowed is None else allowed[n].to(work).clone()
        for n, s in plain.items()
    }
    start = count(kept)
    final = {n: torch.zeros_like(s) for n, s in plain.items()}
    for turn in range(1, ROUNDS + 1):
        target = max(round(start * (budget / start) ** (turn / ROUNDS)), budget)
        scores = path_sum(net, {n: s * kept[n] for n, s in plain.items()}, work)
        best = Ranking(scores, plain, kept).top(target)
        for name, score in scores.items():
            fallen = kept[name] & ~best[name]
            final[name][fallen] = turn + 0.999 * score[fallen]
        kept = best
    for name, score in scores.items():
        final[name][kept[name]] = ROUNDS + 1 + score[kept[name]]
    device = next(iter(saliency.values())).device
    final = {n: f.to(device) for n, f in final.items()}
    return Ranking(final, saliency, allowed)
