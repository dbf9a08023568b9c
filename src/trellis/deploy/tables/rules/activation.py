"""Activations: functions of one unit."""

from __future__ import annotations

import math
from typing import Any

import torch

from ....errors import TrellisError
from ..activation import Activation
from ..network import Network, Signal, lowers
from .arithmetic import mul


def _plain(ops: str, name: str, a: float = 0.0, b: float = 0.0) -> None:
    @lowers(ops)
    def lowered(net: Network, x: Signal, *_: Any, **__: Any) -> Signal:
        return net.each(x, act=Activation(name, a, b))


_plain("relu relu_", "relu")
_plain("relu6 relu6_", "clamp", 0.0, 6.0)
_plain("sigmoid sigmoid_", "sigmoid")
_plain("tanh tanh_", "tanh")
_plain("silu silu_", "silu")
_plain("hardswish hardswish_", "hardswish")
_plain("hardsigmoid hardsigmoid_", "hardsigmoid")
_plain("exp", "exp")
_plain("log", "log")
_plain("sqrt", "sqrt")
_plain("rsqrt", "rsqrt")
_plain("reciprocal", "reciprocal")
_plain("abs", "abs")


@lowers("leaky_relu leaky_relu_")
def leaky(net: Network, x: Signal, slope: float = 0.01) -> Signal:
    return net.each(x, act=Activation("leaky", float(slope)))


@lowers("hardtanh hardtanh_ clamp clamp_")
def clamp(net: Network, x: Signal, low: Any = None, high: Any = None, **named: Any) -> Signal:
    low, high = named.get("min_val", named.get("min", low)), named.get("max", high)
    if not all(v is None or isinstance(v, int | float) for v in (low, high)):
        raise TrellisError("a clamp whose bounds are tensors")
    return net.each(
        x,
        act=Activation(
            "clamp",
            -math.inf if low is None else float(low),
            math.inf if high is None else float(high),
        ),
    )


@lowers("clamp_min")
def clamp_min(net: Network, x: Signal, low: float) -> Signal:
    return clamp(net, x, low)


@lowers("clamp_max")
def clamp_max(net: Network, x: Signal, high: float) -> Signal:
    return clamp(net, x, None, high)


@lowers("gelu")
def gelu(net: Network, x: Signal, approximate: str = "none") -> Signal:
    return net.each(x, act=Activation("gelu" if approximate == "none" else "gelu_tanh"))


@lowers("elu elu_")
def elu(
    net: Network, x: Signal, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Signal:
    y = net.each(x, act=Activation("elu", float(alpha), float(input_scale)))
    return y if scale == 1 else net.each(y, float(scale))


@lowers("softplus")
def softplus(net: Network, x: Signal, beta: float = 1.0, threshold: float = 20.0) -> Signal:
    return net.each(x, act=Activation("softplus", float(beta)))  # beyond 20, linear to rounding


@lowers("glu")
def glu(net: Network, x: Signal, dim: int = -1) -> Signal:
    value, gate = (Signal(part) for part in x.ids.chunk(2, dim))
    return mul(net, value, net.each(gate, act=Activation("sigmoid")))


@lowers("masked_fill")
def masked_fill(net: Network, x: Signal, mask: Any, value: Any) -> Signal:
    if isinstance(mask, Signal):
        raise TrellisError("a mask that is computed from the input")
    # Tables hold finite numbers, so a large negative number stands for minus infinity in a softmax.
    number = max(float(value), -1e30)
    filler = net.constant(torch.tensor([number])).ids[0]
    return Signal(torch.where(mask.expand(x.shape), filler, x.ids))
