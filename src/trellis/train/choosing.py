"""Choosing among the connections that are kept: what `trellis.prune` does, but changing nothing.

Beside the choice itself this keeps a promise over time: whatever is chosen now still has a
consistent network of the last, smallest budget inside. Nothing says so by itself: a network that
reaches every output by paths that share no connection has no smaller one inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from ..errors import TrellisError
from ..paths.scores import best_path
from ..select.chains import chains
from ..select.consistent import closed, fill, finished, prefix, reachable
from ..select.options import MULTIPLY, WALKS, Options
from ..select.phew import phew
from ..select.pieces import complete
from ..select.ranking import Ranking, count
from ..select.saliency import Magnitude, not_negative, perturbed, saliency_of, uniform
from ..select.scope import scoped
from ..select.synflow import synflow
from ..trace.current import Current
from ..trace.steps import Contract
from ..trace.trellis import Trellis

Kept = Mapping[str, Tensor]  # bool, in the parameters' shapes


@dataclass(frozen=True, eq=False)
class Choice:
    """What is ``kept``, and a consistent network of the last budget ``inside`` it: None where
    one is sure to be found."""

    kept: Kept
    inside: Kept | None


@dataclass(frozen=True, eq=False)
class Chooser:
    """Chooses on the weights as they are ``now``. ``target`` is the last budget, ``share`` the
    fraction kept that it was given as.

    Connections that are ``fresh``, about to come back, weigh nothing yet. They count as much as
    the best of their parameter, so that they return unless no path that they lie on is any good.
    """

    net: Trellis
    now: Current
    options: Options
    target: int
    share: Fraction
    fresh: Kept | None = None

    @cached_property
    def worth(self) -> Mapping[str, Tensor]:
        found = saliency_of(self.now, list(self.net.connections), self.options.saliency)
        if self.options.method in MULTIPLY or self.options.stochastic:
            not_negative(found, self.options.method)
        return found

    def choose(self, able: Kept | None, budget: int) -> Kept:
        """``budget`` connections by the options' method, of those in ``able`` (None: of all)."""
        if able is not None and all(bool(mask.all()) for mask in able.values()):
            able = None
        if self.options.method in WALKS:
            return self._walked(able, budget)
        return self._ranked(able, budget)

    def shrink(self, kept: Kept, inside: Kept | None, budget: int) -> Choice:
        """``budget`` of the ``kept`` connections, with a network of the target's size inside."""
        try:
            found = self.choose(kept, budget)
        except TrellisError:
            if inside is None or count(inside) > budget:
                raise
            return self._around(kept, inside, budget)
        if inside is None:
            return Choice(found, None)
        known = self._known(found, inside, budget)
        return self._around(kept, inside, budget) if known is None else Choice(found, known)

    def _around(self, kept: Kept, inside: Kept, budget: int) -> Choice:
        """The network ``inside``, and as much more of what is ``kept`` as the budget allows."""
        if self.options.method in WALKS:
            worth = self._with_fresh(self.worth)
            ranking = Ranking(worth, worth, kept)
        else:
            ranking, _ = self._ranking(dict(kept), budget)
        filled = fill(self.net, ranking, prefix(self.net, ranking, budget, inside).live, budget)
        if count(filled) < budget:
            wanted = reachable(self.net, ranking) if self.options.cover_outputs else None
            found = complete(self.net, ranking, filled, budget, wanted)
            known = self._known(found, inside, budget)  # what was trimmed may have been of it
            if known is not None:
                return Choice(found, known)
        return Choice(filled, inside)

    def _known(self, found: Kept, inside: Kept, budget: int) -> Kept | None:
        """A network of the target's size in what was found; None if none was seen there."""
        if budget <= self.target:
            return found
        if all(bool((found[name] | ~mask).all()) for name, mask in inside.items()):
            return inside
        try:
            return self.choose(found, self.target)
        except TrellisError:
            return None

    def _with_fresh(self, worth: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self.fresh is None:
            return worth
        fresh = self.fresh
        return {
            name: torch.where(fresh[name], value.max(), value) if fresh[name].any() else value
            for name, value in worth.items()
        }

    def _ranked(self, able: Kept | None, budget: int) -> Kept:
        ranking, wanted = self._ranking(None if able is None else dict(able), budget)
        if self.options.closes:
            return closed(self.net, ranking, budget, cover=self.options.cover_outputs)
        return ranking.top(budget) if wanted is None else ranking.top_each(wanted)

    def _ranking(
        self, able: dict[str, Tensor] | None, budget: int
    ) -> tuple[Ranking, dict[str, int] | None]:
        """The method's ranking, and how many of each parameter it keeps, if it says."""
        net, options, worth = self.net, self.options, self.worth
        if options.method == "random":
            worth = uniform(worth, options.seed)
        elif options.stochastic:
            worth = perturbed(worth, options.seed)
        worth = self._with_fresh(worth)
        if options.method == "viterbi":
            signed = worth.signed if isinstance(worth, Magnitude) else worth
            usable = signed if able is None else {n: w * able[n] for n, w in signed.items()}
            return Ranking(best_path(net, usable), worth, able), None
        if options.method == "synflow":
            return synflow(net, dict(worth), able, budget), None
        share = self.share if budget == self.target else Fraction(budget, net.total)
        return scoped(options.scope, dict(worth), able, budget, share)

    def _walked(self, able: Kept | None, budget: int) -> Kept:
        """Walks over what is kept: all else has no weight, and is left out of what they bring."""
        options = self.options
        plain = {name: value.cpu() for name, value in self._with_fresh(self.worth).items()}
        among = None if able is None else {name: mask.cpu() for name, mask in able.items()}
        if among is not None:
            plain = {name: value * among[name] for name, value in plain.items()}
        ranking = Ranking(plain, plain, among)

        def walk(m: int) -> dict[str, Tensor]:
            if options.method == "phew":
                found = phew(self.net, plain, m, seed=options.seed)
            else:
                found = chains(
                    self.net,
                    plain,
                    m,
                    surrogate=options.surrogate,
                    inverse_alpha=options.inverse_alpha,
                    row_normalize=options.row_normalize,
                    stochastic=options.stochastic,
                    seed=options.seed,
                )
            return found if among is None else {n: mask & among[n] for n, mask in found.items()}

        kept: Kept
        if options.closes:
            kept = finished(self.net, ranking, budget, walk, cover=options.cover_outputs)
        else:
            kept = walk(budget)
            if among is not None:
                rest = ranking.top(budget - count(kept), {n: ~mask for n, mask in kept.items()})
                kept = {name: mask | rest[name] for name, mask in kept.items()}
        device = next(iter(self.now.weights.values())).device
        return {name: mask.to(device) for name, mask in kept.items()}


def plenty(net: Trellis, options: Options) -> int | None:
    """A budget from which on every consistent network has one of that budget inside: a longest
    path for each output. None where signals gate each other and there is no such bound."""
    if not options.closes:
        return 0
    if net.gated:
        return None
    depth: dict[int, int] = {}
    for step in net.steps:
        before = max((depth.get(x.id, 0) for x in step.operands), default=0)
        depth[step.out.id] = before + isinstance(step, Contract)
    longest = max(depth.get(signal.id, 0) for signal in net.outputs)
    return longest * (net.output_units if options.cover_outputs else 1)
