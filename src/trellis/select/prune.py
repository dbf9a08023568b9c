"""The public verb: keep the best connections of a model, consistently."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import TrellisError
from ..masks import Masks
from ..paths.scores import best_path
from ..trace.current import current, matching, without
from ..trace.trellis import Trellis, trace
from .budget import budget as exact_budget
from .chains import chains
from .consistent import closed, finished
from .phew import phew
from .ranking import Ranking
from .saliency import Magnitude, Saliency, not_negative, perturbed, saliency_of, uniform
from .scope import check, scoped
from .synflow import synflow

METHODS = ("magnitude", "chains", "viterbi", "synflow", "phew", "random")
CONSISTENT = ("chains", "viterbi", "phew")


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
    surrogate: str = "local",
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

    >>> model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> masks = prune(model, torch.zeros(1, 8), sparsity=0.9)
    >>> masks.kept, masks.total
    (8, 80)
    """
    _check(method, surrogate, inverse_alpha, consistent, scope)
    net = trace(model, example_inputs)
    now = current(net)
    net = without(
        net, matching(net, tuple(ignore) if not isinstance(ignore, str) else ignore), now.weights
    )
    if not net.connections:
        raise TrellisError(
            f"{type(net.model).__name__} has no prunable weights: no parameter outside `ignore` "
            "multiplies a signal"
        )
    sizes = {n: math.prod(shape) for n, shape in net.connections.items()}
    check(scope, sizes)
    if isinstance(scope, Mapping) and sparsity is None and keep is None:
        keep = sum(scope.values())
    count = exact_budget(net.total, sparsity, keep)
    worth = saliency_of(now, list(net.connections), saliency)
    masked = {n: now.masks[n] for n in net.connections if n in now.masks}
    allowed = None
    if masked:
        allowed = {
            n: masked.get(n, torch.ones(shape, dtype=torch.bool, device=now.weights[n].device))
            for n, shape in net.connections.items()
        }
    promise = method in CONSISTENT if consistent is None else consistent
    if method in ("chains", "viterbi", "synflow", "phew") or stochastic:
        not_negative(worth, method)
    options = {
        "method": method,
        "scope": dict(scope) if isinstance(scope, Mapping) else scope,
        "consistent": promise,
        "surrogate": surrogate,
        "inverse_alpha": inverse_alpha,
        "row_normalize": row_normalize,
        "stochastic": stochastic,
        "seed": seed,
        "cover_outputs": cover_outputs,
        "ignore": list(ignore) if not isinstance(ignore, str) else [ignore],
        "saliency": saliency if isinstance(saliency, str) else "given",
    }
    if method in ("chains", "phew"):
        kept = _walked(net, worth, allowed, count, options)
    else:
        kept = _ranked(net, worth, allowed, count, options)
    masks = Masks(
        kept,
        budget=count,
        provenance={"options": options, "inputs": net.specs},
    )
    masks.apply(net.model)
    return masks


def _check(method: str, surrogate: str, inverse_alpha: float, consistent: Any, scope: Any) -> None:
    if method not in METHODS:
        raise TrellisError(f"method={method!r} is unknown: it is one of {', '.join(METHODS)}")
    if surrogate not in ("local", "global"):
        raise TrellisError(f"surrogate={surrogate!r} is unknown: it is 'local' or 'global'")
    if not (isinstance(inverse_alpha, int | float) and inverse_alpha >= 1):
        raise TrellisError(f"inverse_alpha={inverse_alpha!r} must be a number from 1 to infinity")
    if consistent not in (None, True, False):
        raise TrellisError(f"consistent={consistent!r} must be None, True or False")
    if scope != "global" and method not in ("magnitude", "random"):
        raise TrellisError(
            f"scope={scope!r} goes with method 'magnitude' or 'random'; {method!r} ranks globally"
        )


def _ranked(
    net: Trellis,
    worth: Mapping[str, Tensor],
    allowed: dict[str, Tensor] | None,
    count: int,
    options: dict[str, Any],
) -> dict[str, Tensor]:
    """Methods that rank connections."""
    seed = options["seed"]
    if options["method"] == "random":
        worth = uniform(worth, seed)
    elif options["stochastic"]:
        worth = perturbed(worth, seed)
    wanted: dict[str, int] | None = None
    if options["method"] == "viterbi":
        usable = worth.signed if isinstance(worth, Magnitude) else worth
        if allowed is not None:
            usable = {n: w * allowed[n] for n, w in usable.items()}
        ranking = Ranking(best_path(net, usable), worth, allowed)
        return _chosen(net, ranking, count, options)
    worth = dict(worth)
    if options["method"] == "synflow":
        ranking = synflow(net, worth, allowed, count)
    else:
        ranking, wanted = scoped(options["scope"], worth, allowed, count)
    if options["consistent"] or wanted is None:
        return _chosen(net, ranking, count, options)
    return {
        name: Ranking({name: s}, {name: s}, None if allowed is None else {name: allowed[name]}).top(
            wanted[name]
        )[name]
        for name, s in worth.items()
    }


def _chosen(
    net: Trellis, ranking: Ranking, count: int, options: dict[str, Any]
) -> dict[str, Tensor]:
    if options["consistent"]:
        return closed(net, ranking, count, cover=options["cover_outputs"])
    return ranking.top(count)


def _walked(
    net: Trellis,
    worth: Mapping[str, Tensor],
    allowed: dict[str, Tensor] | None,
    count: int,
    options: dict[str, Any],
) -> dict[str, Tensor]:
    """Methods that walk from inputs to outputs; on the CPU, one connection after another."""
    if allowed is not None:
        raise TrellisError(
            f"method {options['method']!r} starts from a network without masks: "
            "bake or remove the model's masks first"
        )
    device = next(iter(worth.values())).device
    worth = {n: w.cpu() for n, w in worth.items()}
    walk: Callable[[int], dict[str, Tensor]]
    if options["method"] == "chains":
        names = ("surrogate", "inverse_alpha", "row_normalize", "stochastic", "seed")
        chosen = {name: options[name] for name in names}

        def walk(n: int) -> dict[str, Tensor]:
            return chains(net, worth, n, **chosen)
    else:

        def walk(n: int) -> dict[str, Tensor]:
            return phew(net, worth, n, seed=options["seed"])

    if not options["consistent"]:
        kept = walk(count)
    else:
        ranking = Ranking(worth, worth, None)
        kept = finished(net, ranking, count, walk, cover=options["cover_outputs"])
    return {n: k.to(device) for n, k in kept.items()}
