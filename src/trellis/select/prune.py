"""The public verb: keep the best connections of a model, consistently."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import nn

from ..devices import on_cpu
from ..errors import TrellisError
from ..finite import check_finite
from ..masks import Masks
from ..trace.current import current, matching, without
from ..trace.trellis import Trellis, trace
from .allowed import allowed, refuse_hooks
from .budget import budget as exact_budget
from .budget import kept_share
from .method import Method
from .options import WALKS, Options
from .saliency import Saliency
from .scope import check


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
