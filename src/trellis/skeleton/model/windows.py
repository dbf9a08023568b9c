"""Filters that slide over time windows: the hidden units of a stack of networks.

A network holds the maximum and the mean of each filter over the windows. Autograd would store the
filter's value in every window. `PooledWindows` stores its inputs and the maximum, and computes the
values again, window by window, for the gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

POOLS = 2  # hidden units of a filter: its maximum and its mean


def pooled_windows(
    attention: Tensor, convolution: Tensor, x: Tensor, windows: int, activation: str
) -> Tensor:
    """Return the hidden units of N networks: the maxima of all filters, then their means.

    attention (N, K, U, V), convolution (N, K, C, F), x (N, B, V, channels) -> (N, K, U, B, 2 F).
    The first rows of the convolution read the channels of a window, the others those of the whole
    recording. Either may be missing.
    """
    networks, heads, nodes, joints = attention.shape
    batch, rows, filters = x.shape[1], convolution.shape[2], convolution.shape[3]
    size = (x.shape[3] - rows) // (windows - 1)  # channels of a window
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        attention, convolution, x = attention.to(dtype), convolution.to(dtype), x.to(dtype)
    mixing = attention.reshape(networks, heads * nodes, joints)
    kernels = convolution.reshape(networks * heads, rows, filters)
    columns = x[..., windows * size :].transpose(1, 2).reshape(networks, joints, -1)
    whole = torch.bmm(mixing, columns).reshape(networks * heads, nodes * batch, rows - size)
    same = torch.bmm(whole, kernels[:, size:])
    # Windows come first, and the batch behind the nodes, so that each window is one product.
    within = x[..., : windows * size].unflatten(3, (windows, size)).permute(3, 0, 2, 1, 4)
    mixed = torch.matmul(mixing, within.reshape(windows, networks, joints, batch * size))
    if not size:  # every window is the same
        mixed = mixed[:1]
    mixed = mixed.reshape(len(mixed), networks * heads, nodes * batch, size)
    pooled: Any = PooledWindows.apply  # torch gives it no type
    most, mean = pooled(mixed, kernels[:, :size], same, activation)
    return torch.cat([most, mean], 2).view(networks, heads, nodes, batch, POOLS * filters)


class PooledWindows(torch.autograd.Function):
    """Maximum and mean over windows w of f(x_w kernel + same).

    x (W, M, R, L), kernel (M, L, F), same (M, R, F) -> two of (M, R, F). Where windows tie, the
    gradient of the maximum goes to the first.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernel: Tensor, same: Tensor, activation: str
    ) -> tuple[Tensor, Tensor]:
        most = _value(x[0], kernel, same, activation)
        total = most.clone()
        for part in x[1:]:
            value = _value(part, kernel, same, activation)
            torch.maximum(most, value, out=most)
            total += value
        ctx.save_for_backward(x, kernel, same, most)
        ctx.activation = activation
        return most, total / len(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_most: Tensor, to_mean: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, kernel, same, most = ctx.saved_tensors
        to_mean = to_mean / len(x)
        to_x = torch.empty_like(x)
        to_kernel = torch.zeros_like(kernel)
        to_same, left = torch.zeros_like(same), to_most.clone()
        back, slack = kernel.transpose(1, 2), _slack(same.dtype)
        for w, part in enumerate(x):
            value = torch.baddbmm(same, part, kernel)
            sign = (value if ctx.activation == "abs" else value.relu()).sign()
            # Elementwise kernels with booleans are ten times slower on a CPU in bfloat16.
            above = value.mul_(sign).mul_(slack).sub_(most)  # > 0 where it has the maximum
            slope = torch.ops.aten.threshold_backward(left, above, 0.0)
            left -= slope  # 0 for windows that tie with this one
            slope.mul_(sign).addcmul_(sign, to_mean)
            to_same += slope
            torch.bmm(slope, back, out=to_x[w])
            to_kernel += torch.bmm(part.transpose(1, 2), slope)
        return to_x, to_kernel, to_same, None


def _slack(dtype: torch.dtype) -> float:
    """Return a factor just above 1: a GPU may round a product differently the second time."""
    exact = dtype in (torch.float32, torch.float64)
    return 1 + (8 if exact else 1) * torch.finfo(dtype).eps


def _value(part: Tensor, kernel: Tensor, same: Tensor, activation: str) -> Tensor:
    value = torch.baddbmm(same, part, kernel)
    return value.abs_() if activation == "abs" else value.relu_()
