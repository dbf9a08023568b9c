"""Straight lines in place of what bends: one replacement per operation of torch.

A function that maps 0 to 0 becomes the identity, any other `c0 + c1 x`. A norm or a softmax becomes
a linear map that
removes what all units have in common; a maximum, a sum over the window. What is left of a network
is a polynomial with the same dependences, whose mixed derivatives see paths and gates and
nothing else. With the real curves every bias would count: in tanh(w1 x + w2 1) the derivative by
x depends on w2, although no input passes through w2.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LINES: dict[str, Callable[..., Any]] = {}  # by the name of the aten operation


def line(names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register one replacement under each of the names."""

    def register(replacement: Callable[..., Any]) -> Callable[..., Any]:
        LINES.update(dict.fromkeys(names.split(), replacement))
        return replacement

    return register


@line("relu relu6 tanh gelu silu elu selu celu leaky_relu hardswish hardtanh mish abs sqrt erf sin")
def through_zero(x: Tensor, *_: Any, **__: Any) -> Tensor:
    return x


@line("sigmoid hardsigmoid exp softplus cos rsqrt reciprocal log_sigmoid log")
def never_zero(x: Tensor, *_: Any, **__: Any) -> Tensor:
    return 0.7 + 0.4 * x


@line("_assert_tensor_metadata")
def says_nothing(*_: Any, **__: Any) -> None:
    """A check of the type that the real curve would have returned."""


@line("pow")
def power(x: Tensor, exponent: float) -> Tensor:
    return x if exponent > 0 else never_zero(x)


@line("div")
def divide(x: Tensor, y: Tensor | float) -> Tensor:
    return x * never_zero(y) if isinstance(y, Tensor) and y.requires_grad else x / y


def centred(x: Tensor, open_: Tensor) -> Tensor:
    """x [..., n] less its mean over where `open_` says so, zero elsewhere."""
    count = open_.sum(-1, keepdim=True).clamp(min=1)
    return (x - (x * open_).sum(-1, keepdim=True) / count) * open_


def mix(x: Tensor, dims: Sequence[int], open_: Tensor | None = None) -> Tensor:
    """A generic linear map of x along `dims` that, as norms and softmaxes do, removes what all
    entries have in common and sums to zero."""
    ends = sorted(d % x.ndim for d in dims)
    moved = x.movedim(ends, list(range(x.ndim - len(ends), x.ndim)))
    flat = moved.flatten(x.ndim - len(ends))
    where = torch.ones_like(flat, dtype=torch.bool) if open_ is None else open_
    count = flat.shape[-1]
    generator = torch.Generator().manual_seed(count)
    uneven = torch.rand(count, count, generator=generator, dtype=x.dtype) + 0.5
    inner = centred(flat, where)
    y = centred(1.3 * inner + inner @ uneven / count, where)
    return y.reshape(moved.shape).movedim(list(range(x.ndim - len(ends), x.ndim)), ends)


@line("softmax _softmax _safe_softmax")
def softmax(x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    """Zero where the score is -inf; sums to one; feels differences of scores alone."""
    x = x.movedim(dim, -1)
    open_ = x.detach() > -1e30
    y = mix(x.masked_fill(~open_, 0.0), [-1], open_)
    return (y + open_ / open_.sum(-1, keepdim=True).clamp(min=1)).movedim(-1, dim)


@line("log_softmax _log_softmax")
def log_softmax(x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    return mix(x, [dim]) + 0.7 * (x.shape[dim] > 1)


@line("layer_norm")
def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Any = None, bias: Any = None, *_: Any
) -> Tensor:
    y = mix(x, range(-len(shape), 0))
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@line("rms_norm")
def rms_norm(x: Tensor, shape: Sequence[int], weight: Any = None, *_: Any) -> Tensor:
    """A gate: what is zero stays zero, what is not feels all others."""
    dims = range(-len(shape), 0)
    y = x * never_zero(x.mean(tuple(dims), keepdim=True))
    return y if weight is None else y * weight


def affine(y: Tensor, weight: Any, bias: Any) -> Tensor:
    """A scale and a shift per channel, y [b, c, *places]."""
    shape = (-1, *[1] * (y.ndim - 2))
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


@line("group_norm")
def group_norm(x: Tensor, groups: int, weight: Any = None, bias: Any = None, *_: Any) -> Tensor:
    mixed = mix(x.reshape(x.shape[0], groups, -1), [-1]).reshape(x.shape)
    return affine(mixed, weight, bias)


@line("instance_norm")
def instance_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, from_input: bool, *_: Any
) -> Tensor:
    if not from_input:
        return F.batch_norm(x, mean, variance, weight, bias)
    return affine(mix(x, range(2 - x.ndim, 0)), weight, bias)


@line("glu")
def glu(x: Tensor, dim: int = -1) -> Tensor:
    value, gate = x.chunk(2, dim)
    return value * never_zero(gate)


@line("scaled_dot_product_attention")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    **_: Any,
) -> Tensor:
    scores = q @ k.transpose(-2, -1)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + mask
    return softmax(scores, -1) @ v


@line("_weight_norm")
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """g v / |v|, its length taken as it is: an entry of v scales one entry of the weight."""
    others = [d for d in range(v.ndim) if d != dim]
    return v * g / v.detach().norm(dim=others, keepdim=True).clamp(min=1e-9)


@line("max_pool1d max_pool2d max_pool3d")
def max_pool(
    x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, *_: Any
) -> Tensor:
    """A sum over the window."""
    places = x.ndim - 2

    def wide(value: Any) -> list[int]:
        value = [value] if isinstance(value, int) else list(value)
        return value * places if len(value) == 1 else value

    channels = x.shape[1]
    ones = torch.ones(channels, 1, *wide(kernel), dtype=x.dtype)
    convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[places - 1]
    stride = wide(stride) if stride else wide(kernel)
    return convolve(x, ones, None, stride, wide(padding), wide(dilation), channels)


@line("adaptive_max_pool2d")
def adaptive_max_pool(x: Tensor, size: Any) -> tuple[Tensor, None]:
    return F.adaptive_avg_pool2d(x, size), None
