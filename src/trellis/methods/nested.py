"""Nested networks: consistent networks of several sizes, each inside the next larger one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from torch import Tensor

from ..graph.trellis import Trellis
from .budget import Ranking, count
from .consistent import complete, fill, prefix
from .cover import Wanted
from .method import Kept

STEPS = 4  # networks from one size asked for to the next, at most


def between(
    net: Trellis, weights: Mapping[str, Tensor], larger: Kept, smaller: Kept, budget: int
) -> Kept:
    """Return ``budget`` connections of ``larger``, all live, with all of ``smaller`` among them.

    The best connections are those of largest magnitude. The result reaches all outputs and layers
    that ``smaller`` reaches. It has fewer connections than the budget only if no consistent network
    of that size was found.

    Args:
        net: The trellis.
        weights: The weights of the connections, by parameter name.
        larger: A consistent network.
        smaller: A consistent network inside it, of at most ``budget`` connections.
        budget: The number of connections.

    Example:
        >>> import torch, trellis
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
        >>> net = trellis.trace(model, torch.zeros(1, 4))
        >>> weights = {name: model.get_parameter(name).detach() for name in net.connections}
        >>> everything = {name: torch.ones_like(weight).bool() for name, weight in weights.items()}
        >>> small = dict(trellis.prune(net, keep=6))
        >>> count(between(net, weights, everything, small, 9))
        9
    """
    if budget >= count(larger):
        return dict(larger)
    if budget <= count(smaller):
        return dict(smaller)
    worth = {name: weights[name].detach().abs().float() for name in larger}
    ranking = Ranking(worth, worth, dict(larger))
    found = fill(net, ranking, prefix(net, ranking, budget, smaller).live, budget)
    if count(found) < budget:
        found = complete(net, ranking, found, budget, Wanted(None), smaller)
    return {name: found[name] for name in smaller}


def sizes(budgets: Sequence[int]) -> list[int]:
    """Return budgets from the largest to the smallest with steps between, in equal ratios.

    >>> sizes([1000, 100, 10])
    [1000, 562, 316, 178, 100, 56, 32, 18, 10]
    >>> sizes([12, 10])
    [12, 11, 10]
    """
    found = []
    for high, low in pairwise(budgets):
        steps = [round(high * (low / high) ** (step / STEPS)) for step in range(STEPS)]
        found += [step for step in steps if step > low]
    return sorted({*found, *budgets}, reverse=True)


def chain(net: Trellis, weights: Mapping[str, Tensor], asked: Sequence[Kept]) -> list[Kept]:
    """Return nested networks from the largest of ``asked`` to the smallest, with steps between.

    Args:
        net: The trellis.
        weights: The weights that decide about the steps, by parameter name.
        asked: Consistent networks, each inside the one before.
    """
    found = [asked[0]]
    for larger, smaller in pairwise(asked):
        for budget in sizes([count(larger), count(smaller)])[1:-1]:
            one = between(net, weights, found[-1], smaller, budget)
            if count(one) < count(found[-1]):
                found.append(one)
        found.append(smaller)
    return found


def share(low: int, high: int, budget: int) -> float:
    """Return how far a budget is from ``high`` to ``low``, in the logarithm.

    >>> share(10, 1000, 100), share(10, 1000, 1000)
    (0.5, 0.0)
    """
    return math.log(high / budget) / math.log(high / low)
