"""Viterbi selection: keep the connections on the best paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ..paths.scores import best_path
from .method import Problem, ScoreMethod, register_method
from .saliency import Magnitudes, finite


@register_method("viterbi")
@dataclass(frozen=True, kw_only=True)
class Viterbi(ScoreMethod):
    """Score a connection by the best path through it: the largest product of saliencies.

    All connections of a best path score at least as high as the path's own product. Therefore every
    threshold on this score gives a consistent network (see the documentation on path algebra).

    It works for every network that can be traced, and for networks with masks. It has no options
    of its own.

    >>> import torch, trellis
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    >>> trellis.prune(model, torch.zeros(1, 8), keep=8, method=Viterbi()).kept
    8
    """

    consistent = True
    multiplies = True
    checks_weights = True

    def scores(self, problem: Problem) -> Mapping[str, Tensor]:
        worth, allowed = problem.saliency, problem.allowed
        signed = worth.signed if isinstance(worth, Magnitudes) else worth
        if allowed is not None:
            signed = {name: value * allowed[name] for name, value in signed.items()}
        scores = best_path(problem.net.lean, signed)
        if problem.unchecked:  # weights that are not finite show in the scores of their paths
            finite(worth, scores.unread if scores.finite else list(worth))
        return scores
