"""Quantisation-aware training: forward passes round as int8 arithmetic will.

`trellis.export_c` with ``arithmetic="int8"`` rounds weights to −127 to 127, with one scale per
output channel. It rounds activations to 256 levels, with one scale and one zero per tensor. Here a
forward pass rounds alike (Jacob et al., "Quantization and Training of Neural Networks", 2018).
Gradients pass as if nothing were rounded (the straight-through estimator of Bengio et al., 2013).

Layers with weights round what they read. The exporter folds batch norm into the layer before, and
adds residual sums before it rounds, so its bytes are where the next layer reads. Batch norm
multiplies a channel by a number, which the scale of the channel absorbs: rounding before it or
after it is the same. Activations other than ReLU and clamping are tables of bytes, and round what
they read as well. Ranges are those of the batch, so that nothing must be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ...masks import Mask
from ...masks.slots import named_slots, tied

QUANTIZED = ("int8",)  # arithmetic that networks can be trained for
_LEVELS, _LARGEST = 255, 127  # of activations above the lowest; of weights on each side of 0
_LEAST = 1e-30  # a scale whose inverse is finite
_LAYERS = frozenset({F.linear, torch.conv1d, torch.conv2d, torch.conv3d})
_TRANSPOSED = frozenset({torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d})
_TABLES = frozenset(
    {
        torch.tanh, Tensor.tanh, torch.sigmoid, Tensor.sigmoid, F.silu, F.gelu, F.hardswish,
        F.hardsigmoid, F.elu, F.selu, F.celu, F.leaky_relu, F.softplus,
    }
)  # fmt: skip
_GROUPS = 6  # place of ``groups`` among the arguments of a transposed convolution


def rounded_weight(weight: Tensor) -> Tensor:
    """Round each output channel, (channels, …), to −127 to 127 times its scale; 0 stays 0.

    >>> rounded_weight(torch.tensor([[127.0, 1.4, 0.0], [0.0, 0.0, 0.0]]))
    tensor([[127.,   1.,   0.],
            [  0.,   0.,   0.]])
    """
    if not weight.numel():
        return weight
    with torch.no_grad():
        value = weight.float()
        each = tuple(range(1, value.ndim)) or (0,)  # a vector is the weight of one output
        scale = (value.abs().amax(each, keepdim=True) / _LARGEST).clamp_(min=_LEAST)
        made = (value / scale).round_().mul_(scale).to(weight.dtype)
    return _straight(weight, made)


def rounded_tensor(value: Tensor) -> Tensor:
    """Round to the 256 levels that span the tensor's numbers and 0, which is one of the levels.

    >>> rounded_tensor(torch.tensor([0.0, 0.4, 100.7, 255.0]))
    tensor([  0.,   0., 101., 255.])
    """
    if not value.is_floating_point() or not value.numel():
        return value
    with torch.no_grad():
        x = value.float()
        low, high = torch.aminmax(x)
        low, high = low.clamp(max=0), high.clamp(min=0)
        scale = ((high - low) / _LEVELS).clamp(min=_LEAST)
        zero = (-low / scale).round_()
        made = (x / scale).round_().add_(zero).clamp_(0, _LEVELS).sub_(zero).mul_(scale)
    return _straight(value, made.to(value.dtype))


def _straight(value: Tensor, made: Tensor) -> Tensor:
    """Return ``made``, with the gradient of ``value``."""
    return value + (made - value).detach()


class RoundsLayers(TorchFunctionMode):
    """Rounds weights of linear layers and convolutions, what these read, and what activations read.

    Attributes:
        read: The weights that layers have read, and what they were rounded to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[Tensor, Tensor]] | None = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        layer = func in _LAYERS or func in _TRANSPOSED
        if not layer and func not in _TABLES:
            return func(*args, **given)
        x = rounded_tensor(args[0] if args else given.pop("input"))
        if not layer:
            return func(x, *args[1:], **given)
        weight = args[1] if len(args) > 1 else given.pop("weight")
        if func in _LAYERS:
            made = rounded_weight(weight)
        else:
            groups = args[_GROUPS] if len(args) > _GROUPS else given.get("groups", 1)
            made = _flipped(rounded_weight(_flipped(weight, groups)), groups)
        if self.read is not None:
            self.read.append((weight, made))
        return func(x, made, *args[2:], **given)


def _flipped(weight: Tensor, groups: int) -> Tensor:
    """Turn (in, out / groups, …) into (out, in / groups, …), and back."""
    each: Tensor = weight.unflatten(0, (groups, -1))
    return each.transpose(1, 2).flatten(0, 1)


@contextmanager
def fake_quantized(model: nn.Module) -> Iterator[None]:
    """Round layers and the model's outputs as int8 arithmetic does, while the context lasts."""

    def outputs(module: nn.Module, inputs: Any, made: Any) -> Any:
        return pytree.tree_map_only(Tensor, rounded_tensor, made)

    hook = model.register_forward_hook(outputs)
    try:
        with RoundsLayers():
            yield
    finally:
        hook.remove()


@torch.no_grad()
def round_weights(model: nn.Module, forward: Callable[[], Any]) -> None:
    """Give a model the rounded weights that its layers read in a forward pass.

    The exporter then finds the scales that the network was trained with. A kept weight that rounds
    to 0 stays as it is, because 0 would mean pruned; the exporter rounds it.
    """
    mode = RoundsLayers()
    mode.read = []
    with mode:
        forward()
    for group in tied(named_slots(model), masked=True):
        slot = group[0][1]
        if len(slot.sources) != 1 or not all(isinstance(each, Mask) for each in slot.transforms):
            continue  # computed, such as by weight norm
        value = slot.value()
        for weight, made in mode.read:
            if weight.shape == value.shape and torch.equal(weight, value):
                stored = slot.sources[0]
                stored.copy_(torch.where(made == 0, stored, made))
                break
