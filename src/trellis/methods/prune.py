"""The public verb: keep the best connections of a model, consistently."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from ..devices import on_cpu
from ..errors import TrellisError
from ..finite import check_finite
from ..graph.current import Current, current, matching, without
from ..graph.trellis import Trellis, trace
from ..masks import Masks
from ..paths.scores import best_path
from .budget import budget as exact_budget
from .budget import check, kept_share, scoped
from .chains import chains
from .consistent import closed, finished
from .options import MULTIPLY, WALKS, Options
from .phew import phew
from .ranking import Ranking, count
from .saliency import Magnitude, Saliency, finite, not_negative, perturbed, saliency_of, uniform
from .synflow import synflow

# Which connections may be kept at all.


STRAY = 1e-3  # share of zeros up to which they are chance: random initialisation draws some
SAMPLE = 1 << 13  # of more zeros than stray ones it misses all once in four thousand tensors


def allowed(net: Trellis, now: Current, *, closed: bool) -> dict[str, Tensor] | None:
    """What is kept now: what masks keep and, for a consistent result (``closed``), what is not
    zero in a parameter that was pruned without masks, since a path through a zero weight is
    none. None where that is everything.

    A parameter that is zero throughout has not been pruned but not been trained yet (the second
    factor of a low-rank adapter, a head initialised to zero): all of it may be kept.
    """
    found: dict[str, Tensor] = {}
    for name in net.connections:
        weight = now.weights[name]
        if name in now.masks:
            found[name] = now.masks[name]
        elif closed and STRAY < zeros(weight) < 1:
            found[name] = weight != 0
    if not found:
        return None
    return {
        name: found[name]
        if name in found
        else torch.ones(shape, dtype=torch.bool, device=now.weights[name].device)
        for name, shape in net.connections.items()
    }


def zeros(weight: Tensor) -> float:
    """The share of entries that are exactly zero; of a large tensor, 0.0 if a sample has none."""
    flat = weight.reshape(-1)
    if flat.numel() > SAMPLE and not bool((flat[:: flat.numel() // SAMPLE | 1] == 0).any()):
        return 0.0
    return 1 - int(torch.count_nonzero(flat)) / flat.numel()


def refuse_hooks(model: nn.Module) -> None:
    """Old-style norms recompute a weight from another before each call: what is masked there
    comes back, or is divided by zero."""
    for name, module in model.named_modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm | SpectralNorm):
                kind = "weight_norm" if isinstance(hook, WeightNorm) else "spectral_norm"
                raise TrellisError(
                    f"{name or type(module).__name__!r} has torch.nn.utils.{kind}, whose weight "
                    "cannot be masked; use "
                    f"torch.nn.utils.parametrizations.{kind} instead, or remove_{kind} first"
                )


# A method at work: which connections it chooses of those that it may, changing nothing.


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


@on_cpu()
def prune(
    model: nn.Module | Trellis,
    example_inputs: Any = None,
    *,
    sparsity: float | None = None,
    keep: int | None = None,
    method: str = "viterbi",
    saliency: Saliency = "magnitude",
    scope: str | Mapping[str, int] = "global",
    consistent: bool | None = None,
    surrogate: Literal["local", "global"] = "local",
    inverse_alpha: float = 1.0,
    row_normalize: bool = False,
    stochastic: bool = False,
    seed: int = 0,
    cover_outputs: bool = True,
    ignore: str | Sequence[str] = (),
) -> Masks:
    """Prune a model in place so that every kept weight is on a path from input to output.

    ``sparsity`` is the fraction removed (or give ``keep``, a number of connections). The masks
    are registered on the model as parametrizations and returned. ``method``:

    - ``"viterbi"``: by the best path product through each connection (the default);
    - ``"magnitude"``, ``"random"``: one by one, spread as ``scope`` says;
    - ``"chains"``: the paper's Algorithm 1, with ``surrogate``, ``inverse_alpha`` (Eq. 5's 1/α)
      and ``row_normalize``;
    - ``"synflow"``: iterative path sums; ``"phew"``: random walks.

    ``consistent=True`` closes any of them. See the documentation for how options compose.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> masks = prune(model, torch.zeros(1, 8), sparsity=0.9)
    >>> masks.kept, masks.total
    (8, 80)
    """
    options = Options(
        method, saliency, scope, consistent, surrogate, inverse_alpha, row_normalize, stochastic,
        seed, cover_outputs, ignore,
    )  # fmt: skip
    scope = options.scope
    net = trace(model, example_inputs)
    refuse_hooks(net.model)
    now = current(net)
    if not isinstance(saliency, str):  # of magnitudes the method tells
        check_finite(now.weights, "repair it before pruning")
    net = without(net, matching(net, options.ignored), now.weights)
    if not net.connections:
        raise TrellisError(
            f"{type(net.model).__name__} has no prunable weights: no parameter outside `ignore` "
            "multiplies a signal"
        )
    check(scope, {n: math.prod(shape) for n, shape in net.connections.items()})
    if isinstance(scope, Mapping) and sparsity is None and keep is None:
        keep = sum(scope.values())
    count = exact_budget(net.total, sparsity, keep)
    if isinstance(scope, Mapping) and sum(scope.values()) != count:
        raise TrellisError(
            f"scope asks for {sum(scope.values())} connections in all and the budget is {count}; "
            "leave out sparsity and keep, or make them agree"
        )
    walks = method in WALKS
    able = allowed(net, now, closed=options.closes and not walks)
    if walks and able is not None:
        raise TrellisError(
            f"method {method!r} starts from a network without masks; use method='viterbi'"
        )
    share = kept_share(net.total, sparsity, keep)
    kept = Method(net, now, options).choose(able, count, share)
    masks = Masks(kept, budget=count, provenance={"options": options.record(), "inputs": net.specs})
    masks.apply(net.model)
    return masks
