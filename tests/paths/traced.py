"""Examples of the zoo, each built and traced once for all tests that only look at it."""

import re
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tests.zoo import ZOO
from trellis import Masks, Trellis, TrellisError, prune, trace


@cache
def traced(name: str) -> tuple[Trellis, tuple[Tensor, ...]]:
    model, inputs = ZOO[name]()
    return trace(model, inputs), inputs


def shapes(net: Trellis) -> dict[str, Tensor]:
    """An empty tensor in the shape of each parameter that holds connections."""
    return {name: torch.empty(shape) for name, shape in net.connections.items()}


def prune_hard(net: Trellis, sparsity: float, **options: Any) -> Masks:
    """Prune at ``sparsity``; where that is too much, to the budget that the error says works."""
    try:
        return prune(net, sparsity=sparsity, **options)
    except TrellisError as error:
        if "keep at least 1" not in str(error):
            return prune(net, keep=named(error), **options)
    try:
        return prune(net, keep=1, **options)
    except TrellisError as error:
        return prune(net, keep=named(error), **options)


def named(error: TrellisError) -> int:
    """The budget that an error says works."""
    found = re.search(r"keep=(\d+) works", str(error))
    assert found is not None, error
    return int(found[1])
