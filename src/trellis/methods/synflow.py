"""SynFlow: rounds of path-sum scores, each on what the last one left."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..graph.trellis import Trellis
from ..paths.kernels import CPU
from ..paths.scores import path_sum
from .ranking import Ranking, count

ROUNDS = 100


def synflow(
    net: Trellis,
    saliency: Mapping[str, Tensor],
    allowed: Mapping[str, Tensor] | None,
    budget: int,
    work: torch.device = CPU,
) -> Ranking:
    """A ranking whose best ``budget`` are what iterative SynFlow keeps.

    Connections rank by the round in which they fell, and within a round by their score. Sums are
    taken on the CPU, wherever the model lies, so that they round alike; who can do without that
    may say where to ``work``.
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
