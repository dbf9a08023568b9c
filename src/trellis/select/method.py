"""A method at work: which connections it chooses of those that it may, changing nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from ..paths.scores import best_path
from ..trace.current import Current
from ..trace.trellis import Trellis
from .chains import chains
from .consistent import closed, finished
from .options import MULTIPLY, WALKS, Options
from .phew import phew
from .ranking import Ranking, count
from .saliency import Magnitude, finite, not_negative, perturbed, saliency_of, uniform
from .scope import scoped
from .synflow import synflow

Kept = Mapping[str, Tensor]  # bool, in the parameters' shapes


@dataclass(frozen=True, eq=False)
class Method:
    """The ``options``' method on the weights as they are ``now``.

    Connections that are ``fresh``, about to come back, weigh nothing yet. They count as much as
    the best of their parameter, so that they return unless no path that they lie on is any good.
    """

    net: Trellis
    now: Current
    options: Options
    fresh: Kept | None = None

    @cached_property
    def saliency(self) -> Mapping[str, Tensor]:
        found = saliency_of(self.now, list(self.net.connections), self.options.saliency)
        if not self._weighs_weights:
            finite(found, list(found))
        if self.options.method in MULTIPLY or self.options.stochastic:
            not_negative(found, self.options.method)
        return found

    def choose(self, able: Kept | None, budget: int, share: Fraction | None = None) -> Kept:
        """``budget`` connections of those in ``able`` (None: of all). ``share``: the fraction
        kept that the budget was given as, which layers are rounded down by one by one."""
        if able is not None and count(able) == self.net.total:
            able = None
        if self.options.method in WALKS:
            return self._walked(able, budget)
        ranking, counts = self._ranked(able, budget, share)
        if self.options.closes:
            return closed(self.net.lean, ranking, budget, cover=self.options.cover_outputs)
        return ranking.top(budget) if counts is None else ranking.top_each(counts)

    def ranking(self, able: Kept, budget: int) -> Ranking:
        """How the method ranks; a method that walks fills up by saliency."""
        if self.options.method in WALKS:
            worth = self._lifted(self.saliency)
            return Ranking(worth, worth, able)
        return self._ranked(able, budget, None)[0]

    def _ranked(
        self, able: Kept | None, budget: int, share: Fraction | None
    ) -> tuple[Ranking, dict[str, int] | None]:
        """The ranking, and how many of each parameter are kept, if the scope says."""
        net, options, worth = self.net, self.options, self.saliency
        if options.method == "random":
            worth = uniform(worth, options.seed)
        elif options.stochastic:
            worth = perturbed(worth, options.seed)
        worth = self._lifted(worth)
        among = None if able is None else dict(able)
        if options.method == "viterbi":
            signed = worth.signed if isinstance(worth, Magnitude) else worth
            usable = signed if among is None else {n: w * among[n] for n, w in signed.items()}
            scores = best_path(net.lean, usable)
            if self._weighs_weights:
                finite(worth, scores.unread if scores.finite else list(worth))
            return Ranking(scores, worth, among), None
        if options.method == "synflow":
            return synflow(net, dict(worth), among, budget), None
        share = Fraction(budget, net.total) if share is None else share
        return scoped(options.scope, dict(worth), among, budget, share)

    @property
    def _weighs_weights(self) -> bool:
        """Whether paths are weighed by the weights as they are. Weights that are not finite show
        in what paths weigh then: to look for them first would be one more pass over them all."""
        options = self.options
        plain = options.saliency == "magnitude" and not options.stochastic and self.fresh is None
        return plain and options.method == "viterbi"

    def _walked(self, able: Kept | None, budget: int) -> Kept:
        """Walks from inputs to outputs, on the CPU, over what may be kept: all else has no
        weight, and is left out of what they bring."""
        plain = {name: value.cpu() for name, value in self._lifted(self.saliency).items()}
        among = None if able is None else {name: mask.cpu() for name, mask in able.items()}
        if among is not None:
            plain = {name: value * among[name] for name, value in plain.items()}
        ranking = Ranking(plain, plain, among)

        def walk(m: int) -> dict[str, Tensor]:
            found = self._walk(plain, m)
            return found if among is None else {n: mask & among[n] for n, mask in found.items()}

        kept: Kept
        if self.options.closes:
            kept = finished(self.net.lean, ranking, budget, walk, cover=self.options.cover_outputs)
        else:
            kept = walk(budget)
            if among is not None:
                rest = ranking.top(budget - count(kept), {n: ~mask for n, mask in kept.items()})
                kept = {name: mask | rest[name] for name, mask in kept.items()}
        device = next(iter(self.now.weights.values())).device
        return {name: mask.to(device) for name, mask in kept.items()}

    def _walk(self, saliency: dict[str, Tensor], budget: int) -> dict[str, Tensor]:
        options = self.options
        if options.method == "phew":
            return phew(self.net, saliency, budget, seed=options.seed)
        return chains(
            self.net,
            saliency,
            budget,
            surrogate=options.surrogate,
            inverse_alpha=options.inverse_alpha,
            row_normalize=options.row_normalize,
            stochastic=options.stochastic,
            seed=options.seed,
        )

    def _lifted(self, worth: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """With what is fresh at its parameter's best."""
        if self.fresh is None:
            return worth
        fresh = self.fresh
        return {
            name: torch.where(fresh[name], value.max(), value) if fresh[name].any() else value
            for name, value in worth.items()
        }
