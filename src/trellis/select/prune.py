"""The public verb: keep the best connections of a model, consistently."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from torch import Tensor, nn

from ..errors import TrellisError
from ..masks import Masks
from ..paths.scores import best_path
from ..trace.current import current, matching, without
from ..trace.trellis import Trellis, trace
from .allowed import allowed, refuse_hooks
from .budget import budget as exact_budget
from .budget import kept_share
from .chains import chains
from .consistent import closed, finished
from .options import MULTIPLY, WALKS, Options
from .phew import phew
from .ranking import Ranking
from .saliency import Magnitude, Saliency, not_negative, perturbed, saliency_of, uniform
from .scope import check, scoped
from .synflow import synflow


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
    net = trace(model, example_inputs)
    refuse_hooks(net.model)
    now = current(net)
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
    worth = saliency_of(now, list(net.connections), saliency)
    if method in MULTIPLY or stochastic:
        not_negative(worth, method)
    walks = method in WALKS
    able = allowed(net, now, closed=options.closes and not walks)
    if walks:
        kept = _walked(net, worth, able, count, options)
    else:
        kept = _ranked(net, worth, able, count, kept_share(net.total, sparsity, keep), options)
    masks = Masks(kept, budget=count, provenance={"options": options.record(), "inputs": net.specs})
    masks.apply(net.model)
    return masks


def _ranked(
    net: Trellis,
    worth: Mapping[str, Tensor],
    able: dict[str, Tensor] | None,
    count: int,
    share: Fraction,
    options: Options,
) -> Mapping[str, Tensor]:
    """Methods that rank connections."""
    if options.method == "random":
        worth = uniform(worth, options.seed)
    elif options.stochastic:
        worth = perturbed(worth, options.seed)
    wanted: dict[str, int] | None = None
    if options.method == "viterbi":
        ranking = Ranking(best_path(net, _usable(worth, able)), worth, able)
    elif options.method == "synflow":
        ranking = synflow(net, dict(worth), able, count)
    else:
        ranking, wanted = scoped(options.scope, dict(worth), able, count, share)
    if options.closes:
        return closed(net, ranking, count, cover=options.cover_outputs)
    return ranking.top(count) if wanted is None else ranking.top_each(wanted)


def _usable(worth: Mapping[str, Tensor], able: dict[str, Tensor] | None) -> Mapping[str, Tensor]:
    signed = worth.signed if isinstance(worth, Magnitude) else worth
    return signed if able is None else {n: w * able[n] for n, w in signed.items()}


def _walked(
    net: Trellis,
    worth: Mapping[str, Tensor],
    able: dict[str, Tensor] | None,
    count: int,
    options: Options,
) -> Mapping[str, Tensor]:
    """Methods that walk from inputs to outputs; on the CPU, one connection after another."""
    if able is not None:
        raise TrellisError(
            f"method {options.method!r} starts from a network without masks; use method='viterbi'"
        )
    plain = {n: w.cpu() for n, w in worth.items()}

    def walk(n: int) -> dict[str, Tensor]:
        if options.method == "phew":
            return phew(net, plain, n, seed=options.seed)
        return chains(
            net,
            plain,
            n,
            surrogate=options.surrogate,
            inverse_alpha=options.inverse_alpha,
            row_normalize=options.row_normalize,
            stochastic=options.stochastic,
            seed=options.seed,
        )

    if options.closes:
        ranking = Ranking(plain, plain)
        kept = finished(net, ranking, count, walk, cover=options.cover_outputs)
    else:
        kept = walk(count)
    device = next(iter(worth.values())).device
    return {n: k.to(device) for n, k in kept.items()}
