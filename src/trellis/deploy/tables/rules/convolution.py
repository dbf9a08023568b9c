"""Convolutions: one term per kept tap and output position, unless the tap reads padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....errors import TrellisError
from ....graph.steps import grid, pair, sliding
from ..network import Network, Signal, lowers


@lowers("conv1d conv2d conv3d")
def conv(
    net: Network, x: Signal, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Signal:  # fmt: skip
    if isinstance(weight, Signal):
        raise TrellisError("a convolution whose kernel is computed from the input")
    n = weight.dim() - 2
    if len(x.shape) == n + 1:
        raise TrellisError("a convolution without a batch dimension")
    size, kernel = x.shape[2:], weight.shape[2:]
    stride, dilation = pair(stride, n), pair(dilation, n)
    if isinstance(padding, str):
        total = [
            d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, kernel, strict=True)
        ]
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        before = after = pair(padding, n)
    out = [
        (size[d] + before[d] + after[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1
        for d in range(n)
    ]
    taps = grid(
        [sliding(size[d], out[d], kernel[d], stride[d], before[d], dilation[d]) for d in range(n)],
        size,
    )  # (places, taps): the input position that each tap reads, −1 for padding
    y = _tapped(net, x, weight.reshape(*weight.shape[:2], -1), taps, groups, out)
    return y if bias is None else net.each(y, shift=bias.double().numpy().reshape(-1, *[1] * n))


@lowers("convolution _convolution")
def convolution(
    net: Network, x: Signal, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    across: bool, output_padding: Any, groups: int, *_: Any,
) -> Signal:  # fmt: skip
    if across:
        return transposed(net, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(net, x, weight, bias, stride, padding, dilation, groups)


@lowers("conv_transpose1d conv_transpose2d conv_transpose3d")
def transposed(
    net: Network, x: Signal, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Signal:  # fmt: skip
    """Write terms for a transposed convolution: each tap sends every position to another."""
    if isinstance(weight, Signal):
        raise TrellisError("a convolution whose kernel is computed from the input")
    n = weight.dim() - 2
    size, kernel = x.shape[2:], weight.shape[2:]
    stride, padding, dilation = pair(stride, n), pair(padding, n), pair(dilation, n)
    more = pair(output_padding, n)
    out = [
        (size[d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel[d] - 1) + more[d] + 1
        for d in range(n)
    ]
    index = []  # per dimension: the output position of each (position, tap), −1 for none
    for d in range(n):
        at = torch.arange(size[d])[:, None] * stride[d] - padding[d]
        at = at + torch.arange(kernel[d]) * dilation[d]
        index.append(torch.where((at >= 0) & (at < out[d]), at, -1))
    where = grid(index, out).numpy().T  # (taps, places)
    flat_weight = weight.reshape(*weight.shape[:2], -1)
    entries = torch.nonzero(flat_weight)
    source, within, tap = entries.T.numpy()
    values = flat_weight[tuple(entries.T)].double().numpy()
    channel = source // (weight.shape[0] // groups) * weight.shape[1] + within
    goes = where[tap]  # (entries, places)
    real = goes >= 0
    units = x.ids.reshape(x.shape[1], -1).numpy()
    rows = channel[:, None] * math.prod(out) + goes
    channels = weight.shape[1] * groups
    y = net.sums(
        (1, channels, *out), rows[real], units[source][real],
        np.broadcast_to(values[:, None], goes.shape)[real],
    )  # fmt: skip
    return y if bias is None else net.each(y, shift=bias.double().numpy().reshape(-1, *[1] * n))


def _tapped(
    net: Network, x: Signal, weight: Tensor, taps: Tensor, groups: int, out: Sequence[int]
) -> Signal:
    """Write the terms of a convolution; weight (output channels, channels per group, taps)."""
    places = math.prod(out)
    entries = torch.nonzero(weight)  # (entries, 3)
    channel, within, tap = entries.T.numpy()
    values = weight[tuple(entries.T)].double().numpy()
    source = channel // (weight.shape[0] // groups) * weight.shape[1] + within
    where = taps.numpy().T[tap]  # (entries, places)
    real = where >= 0
    units = x.ids.reshape(x.shape[1], -1).numpy()  # a batch of one
    rows = channel[:, None] * places + np.arange(places)[None, :]
    reads = units[source[:, None], np.maximum(where, 0)]
    weights = np.broadcast_to(values[:, None], where.shape)
    return net.sums((1, weight.shape[0], *out), rows[real], reads[real], weights[real])


def windows(x: Signal, taps: Tensor) -> tuple[Any, Any]:
    """Return rows and reads of a pooling with the same windows (places, taps) in every channel."""
    units = x.ids.reshape(x.shape[1], -1).numpy()
    channels, places = len(units), len(taps)
    where = np.broadcast_to(taps.numpy()[None], (channels, *taps.shape))
    rows = np.arange(channels * places).reshape(channels, places, 1)
    real = where >= 0
    reads = np.take_along_axis(units, np.maximum(where, 0).reshape(channels, -1), axis=1).reshape(
        where.shape
    )
    return np.broadcast_to(rows, where.shape)[real], reads[real]
