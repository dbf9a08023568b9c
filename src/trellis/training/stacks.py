"""Stacks: networks of one architecture, each parameter with a first dimension for networks.

`Adam` updates a whole stack, with one learning rate per network.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
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


_SQUARES = 0.999
_TINY = 1e-8


def update(
    weight: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, mask: Tensor | None,
    rates: Tensor, warmth: Tensor, momentum: float, decay: float,
) -> None:  # fmt: skip
    """Update one parameter of all networks, in place.

    The gradient of a masked connection is 0, so that its averages stay 0 and its weight of 0 does
    not change.

    Args:
        weight: (networks, connections), as are gradient, mean, square and mask.
        gradient: The gradient of this step.
        mean: The moving average of the gradient.
        square: The moving average of the squared gradient.
        mask: The kept connections; None for all.
        rates: Learning rates, (networks,).
        warmth: Bias corrections of both averages, (2,).
        momentum: Decay rate of ``mean``.
        decay: Weight decay.
    """
    by_network = rates.to(weight.dtype)[:, None]
    if mask is not None:
        gradient = gradient * mask
    mean.lerp_(gradient, 1 - momentum)
    square.mul_(_SQUARES).addcmul_(gradient, gradient, value=1 - _SQUARES)
    deviation = (square / warmth[1]).sqrt_().add_(_TINY)
    change = mean / warmth[0]
    change.div_(deviation)
    if decay:
        change.add_(weight, alpha=decay)
    weight.sub_(change.mul_(by_network))


def fused_update(
    weight: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, mask: Tensor | None,
    rates: Tensor, warmth: Tensor, momentum: float, decay: float,
) -> None:  # fmt: skip
    """Do the same as `update`, on a GPU and in float32."""
    from .adam_kernel import update_kernel

    networks, connections = weight.shape
    update_kernel[(-(-connections // 1024), networks)](
        weight, gradient.contiguous(), mean, square, gradient if mask is None else mask, rates,
        warmth, connections, momentum, _SQUARES, decay, _TINY, MASKED=mask is not None, SIZE=1024,
    )  # fmt: skip


class Adam:
    """The optimizer of a stack: `torch.optim.AdamW` with a learning rate for each network.

    >>> weights = {"w": torch.ones(2, 3)}
    >>> adam = Adam(weights, {}, momentum=0.9, decay=0.0)
    >>> adam.step([torch.ones(2, 3)], rates=torch.tensor([0.1, 0.2]))
    >>> weights["w"][:, 0]
    tensor([0.9000, 0.8000])
    """

    def __init__(
        self, weights: Weights, masks: Mapping[str, Tensor], momentum: float, decay: float
    ) -> None:
        self.weights, self.masks = weights, masks
        self.momentum, self.decay = momentum, decay
        self.means = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self.squares = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        device = next(iter(weights.values())).device
        self.count = torch.zeros((), dtype=torch.float64, device=device)
        self.shares = torch.tensor([momentum, _SQUARES], dtype=torch.float64, device=device)
        # A step on a GPU is bound by memory: the kernel needs one pass, `update` ten.
        single = all(weight.dtype == torch.float32 for weight in weights.values())
        self.fused = device.type == "cuda" and single and find_spec("triton") is not None

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rates: Tensor) -> None:
        """Do one step; gradients are in the order of the weights, rates (networks,)."""
        first = next(iter(self.weights.values()))
        self.count += 1
        warmth = (1 - self.shares**self.count).to(
            first.dtype
        )  # float64: float32 powers are too near 1
        for (name, weight), gradient in zip(self.weights.items(), gradients, strict=True):
            (fused_update if self.fused else update)(
                self._flat(weight), gradient.reshape(len(weight), -1),
                self._flat(self.means[name]), self._flat(self.squares[name]),
                self._flat(self.masks[name]) if name in self.masks else None,
                rates[: len(weight)],  # of nested networks, some weights are shared
                warmth, self.momentum, self.decay,
            )  # fmt: skip

    @staticmethod
    def _flat(stack: Tensor) -> Tensor:
        return stack.view(len(stack), -1)  # view: a copy would be updated instead

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint stores beside the weights."""
        found = {"adam.count": self.count}
        found |= {f"adam.mean.{name}": mean for name, mean in self.means.items()}
        found |= {f"adam.square.{name}": square for name, square in self.squares.items()}
        return found
