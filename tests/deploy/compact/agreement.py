"""Whether two models compute the same."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


def doubled(model: nn.Module, inputs: tuple[Any, ...]) -> tuple[nn.Module, tuple[Any, ...]]:
    """Both in double precision, in which equality can be asked for tightly."""
    floats = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    return model.double(), floats


def drawn(inputs: tuple[Tensor, ...], batch: int | None, seed: int = 7) -> tuple[Tensor, ...]:
    """Other inputs: random floats, the same integers; ``batch`` samples, or as many as there
    are."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for x in inputs:
        shape = x.shape if batch is None else (batch, *x.shape[1:])
        if x.is_floating_point():
            found.append(torch.randn(shape, generator=generator).to(x))
        else:
            found.append(x.expand(shape))
    return tuple(found)


def outputs(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    with torch.no_grad():
        found = pytree.tree_leaves(model(*inputs))
    return [y.detach() for y in found if isinstance(y, Tensor)]


def apart(a: list[Tensor], b: list[Tensor]) -> float:
    """The largest difference, as a part of the largest output."""
    assert [y.shape for y in a] == [y.shape for y in b]
    top = max(float(y.abs().max()) for y in a)
    far = max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))
    return far / top if top else far
