"""Viterbi selection: keep the connections on the best paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
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

    A product prefers paths with few factors, such as those along skip connections. Prefer the
    default method for networks that have some.

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
        if scores.nothing and (filled := _without_zeros(signed, allowed)):
            scores = best_path(problem.net.lean, filled)
        if problem.unchecked:  # weights that are not finite show in the scores of their paths
            finite(worth, scores.unread if scores.finite else list(worth))
        return scores


def _without_zeros(
    signed: Mapping[str, Tensor], allowed: Mapping[str, Tensor] | None
) -> dict[str, Tensor] | None:
    """Return the saliencies with a constant for each parameter that is zero everywhere.

    None if every parameter has a value other than zero. Where every path leads through a parameter
    that is zero (a head that is initialised to zero), all products are zero, and the other
    parameters would not count at all.
    """
    found, changed = {}, False
    for name, value in signed.items():
        able = None if allowed is None else allowed[name]
        empty = not bool(value.any()) and (able is None or bool(able.any()))
        found[name] = torch.ones_like(value) if empty else value
        if empty and able is not None:
            found[name] = found[name] * able
        changed |= empty
    return found if changed else None
