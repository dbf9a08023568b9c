"""Stacks: networks of one architecture, each parameter with a first dimension for networks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import TrellisError

Weights = dict[str, Tensor]  # by parameter name, (networks, *shape)
# (weights, inputs (networks, batch, ...)) -> outputs (networks, batch, ...)
Forward = Callable[[Mapping[str, Tensor], Tensor], Tensor]


def stack(models: Sequence[nn.Module]) -> Weights:
    """Return the stacked parameters of networks of one architecture.

    Raises:
        TrellisError: There are no networks, or their parameters differ.

    >>> {name: tuple(w.shape) for name, w in stack([nn.Linear(3, 2) for _ in range(5)]).items()}
    {'weight': (5, 2, 3), 'bias': (5, 2)}
    """
    states = [dict(model.named_parameters()) for model in models]
    if not states:
        raise TrellisError("expected at least one network to stack, got none")
    shapes = [{name: tuple(w.shape) for name, w in state.items()} for state in states]
    for other in shapes[1:]:
        if other != shapes[0]:
            raise TrellisError(
                f"expected networks of one architecture, got parameters {shapes[0]} and {other}"
            )
    return {name: torch.stack([s[name].detach() for s in states]) for name in states[0]}


def unstack(weights: Mapping[str, Tensor], models: Sequence[nn.Module]) -> None:
    """Copy the weights of network i of a stack into ``models[i]``."""
    with torch.no_grad():
        for i, model in enumerate(models):
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name][i])


def forward_of(model: nn.Module) -> Forward:
    """Return a function that runs a stack of networks like ``model``.

    If the model has a method ``stacked(weights, inputs)``, this is the function. Otherwise
    ``torch.func.vmap`` maps the model, in evaluation mode, over its parameters.

    >>> model = nn.Linear(3, 2)
    >>> weights = stack([model, model])
    >>> forward_of(model)(weights, torch.zeros(2, 7, 3)).shape
    torch.Size([2, 7, 2])
    """
    own = getattr(model, "stacked", None)
    if own is not None:
        return own  # type: ignore[no-any-return]
    quiet = copy.deepcopy(model).eval()
    buffers: dict[str, Any] = dict(quiet.named_buffers())

    def one(weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return torch.func.functional_call(quiet, (weights, buffers), (inputs,))  # type: ignore[no-any-return]

    mapped = torch.func.vmap(one)
    return lambda weights, inputs: mapped(dict(weights), inputs)
