"""A stack of one-block GCNs on a GPU in bfloat16, by kernels that never store hidden units."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .tiles import power, two_parts

_HALF = torch.bfloat16
_HEADS = 2  # a program of the forward kernel sums over so many heads
_GROUPS = 3  # a head's nodes are shared out to so many programs of the backward kernel
_SPLITS = 16  # the attention's gradient is summed in so many parts


class Fused(torch.autograd.Function):
    """attention (N, K, U, V), convolution (N, K, C, F), dense (N, classes, U * K * F), inputs
    (N, B, V, C) -> logits (N, B, classes) in float32. What is below zero in a hidden unit is
    folded up (``folds``: the absolute value) or cut off (the ReLU)."""

    @staticmethod
    def forward(
        ctx: Any, attention: Tensor, convolution: Tensor, dense: Tensor, x: Tensor, folds: bool
    ) -> Tensor:
        from .kernels import logits_kernel

        networks, batch, nodes, channels = x.shape
        heads, filters, classes = attention.shape[1], convolution.shape[-1], dense.shape[1]
        padded = power(nodes)  # rows that tensor cores can read
        columns = x.new_empty(networks, padded, batch, channels, dtype=_HALF)
        columns[:, :nodes] = x.transpose(1, 2)
        columns[:, nodes:] = 0
        rows = F.pad(attention.to(_HALF), (0, padded - nodes)).flatten(1, 2)
        z = torch.bmm(rows, columns.flatten(2))
        w = convolution.to(_HALF).contiguous()
        d = dense.to(_HALF).contiguous()
        wide = power(classes)
        splits = -(-heads // _HEADS)
        parts = x.new_empty(networks, splits, batch, wide, dtype=torch.float32)
        logits_kernel[(networks, -(-batch // 64), splits)](
            z, w, d, parts, heads, nodes, batch, classes, _HEADS,
            C=channels, F=filters, P=wide, **two_parts(channels), ROWS=64, FOLDS=folds,
            num_warps=4, num_stages=3,
        )  # fmt: skip
        ctx.save_for_backward(columns, z, w, d)
        ctx.sizes = (networks, heads, nodes, batch, channels, filters, classes)
        ctx.folds = folds
        return parts.sum(1)[..., :classes]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        from .kernels import attention_kernel, gradients_kernel

        columns, z, w, d = ctx.saved_tensors
        networks, heads, nodes, batch, channels, filters, classes = ctx.sizes
        wide = power(classes)
        g = F.pad(gradient.to(w.dtype), (0, wide - classes)).contiguous()
        groups = min(_GROUPS, nodes)
        single: Any = {"dtype": torch.float32, "device": w.device}
        dz = torch.empty_like(z)
        dw = torch.empty(networks, heads, groups, channels, filters, **single)
        dd = torch.empty(d.shape, **single)
        gradients_kernel[(networks, heads, groups)](
            z, w, d, g, dz, dw, dd, heads, nodes, batch, classes, -(-nodes // groups),
            C=channels, F=filters, P=wide, **two_parts(channels), ROWS=128, FOLDS=ctx.folds,
            num_warps=8, num_stages=2,
        )  # fmt: skip
        rows, width, padded = heads * nodes, batch * channels, columns.shape[1]
        span = -(-width // (_SPLITS * 128)) * 128
        da = torch.empty(networks, _SPLITS, rows, padded, **single)
        attention_kernel[(networks, -(-rows // 64), _SPLITS)](
            dz, columns, da, rows, width, span, V=padded, ROWS=64, COLUMNS=128,
            num_warps=4, num_stages=3,
        )  # fmt: skip
        attention = da.sum(1)[..., :nodes].reshape(networks, heads, nodes, nodes)
        return attention, dw.sum(2), dd, None, None
