"""Examples of the zoo, each built and traced once for all tests that only look at it."""

import re
from functools import cache

import pytest
import torch
from torch import Tensor

from tests.zoo import ZOO
from trellis import Masks, Trellis, prune, trace
from trellis.errors import TrellisError


@cache
def traced(name: str) -> tuple[Trellis, tuple[Tensor, ...]]:
    model, inputs = ZOO[name]()
    return trace(model, inputs), inputs


def shapes(net: Trellis) -> dict[str, Tensor]:
    """An empty tensor in the shape of each parameter that holds connections."""
    return {name: torch.empty(shape) for name, shape in net.connections.items()}


def prune_exactly(net: Trellis, thousandths: int) -> Masks:
    """Prune to so many thousandths of the connections, and not one less."""
    masks = prune(net, sparsity=1 - thousandths / 1000)
    assert masks.kept == masks.budget == net.total * thousandths // 1000
    return masks


def prune_least(net: Trellis, thousandths: int) -> Masks:
    """Where so few thousandths are too few for any network, an error says so; then to the budget
    that it says works."""
    with pytest.raises(TrellisError) as caught:
        prune(net, sparsity=1 - thousandths / 1000)
    if "keep at least 1" not in str(caught.value):
        return prune(net, keep=named(caught.value))
    try:
        return prune(net, keep=1)
    except TrellisError as error:
        return prune(net, keep=named(error))


def named(error: TrellisError) -> int:
    """The budget that an error says works."""
    found = re.search(r"keep=(\d+) works", str(error))
    assert found is not None, error
    return int(found[1])
