"""Many GCNs at once: the same function as `GCN.forward`, as few and large products as possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from .fast import fast_logits

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "abs": torch.abs}


def stacked_block(
    attention: Tensor, convolution: Tensor, bias: Tensor | None, combine: str, activation: str,
    x: Tensor,
) -> Tensor:  # fmt: skip
    """One block of N networks.

    attention (N, K, U, V), convolution (N, K or 1, C, F), bias (N, width), x (N, B, V, C)
    -> (N, K, U, B, F), or (N, 1, U, B, F) for summed heads: batch behind nodes, so that every
    product reads its operands as they lie.
    """
    networks, heads, nodes, _ = attention.shape
    _, batch, _, channels = x.shape
    filters = convolution.shape[-1]
    kernels = convolution.shape[1]
    if channels <= filters:  # joints are mixed where their signal is smaller
        columns = x.permute(0, 2, 1, 3).reshape(networks, nodes, batch * channels)
        mixed = torch.bmm(attention.reshape(networks, heads * nodes, nodes), columns)
        rows = mixed.reshape(networks * kernels, -1, channels)
        signal = torch.bmm(rows, convolution.reshape(-1, channels, filters))
    else:
        rows = x.permute(0, 2, 1, 3).reshape(networks, 1, nodes * batch, channels)
        convolved = torch.matmul(rows, convolution)  # networks, kernels, nodes * batch, filters
        columns = convolved.reshape(networks, kernels, nodes, batch * filters)
        signal = torch.matmul(attention, columns)
    signal = signal.reshape(networks, heads, nodes, batch, filters)
    if combine == "sum":
        signal = signal.sum(1, keepdim=True)
    if bias is not None:
        signal = signal + bias.reshape(networks, -1, 1, 1, filters)
    return ACTIVATIONS[activation](signal)


def stacked_dense(weight: Tensor, bias: Tensor | None, hidden: Tensor) -> Tensor:
    """(N, classes, U * K * F) on (N, K, U, B, F) -> (N, B, classes)."""
    networks, heads, nodes, batch, filters = hidden.shape
    classes = weight.shape[1]
    by_unit = weight.reshape(networks, classes, nodes, heads, filters).permute(0, 3, 2, 4, 1)
    parts = torch.bmm(
        hidden.reshape(-1, batch, filters), by_unit.reshape(-1, filters, classes)
    )  # one for every head and node
    logits = parts.reshape(networks, heads * nodes, batch, classes).sum(1)
    return logits if bias is None else logits + bias[:, None]


def stacked_gcn(
    weights: Mapping[str, Tensor], x: Tensor, blocks: int, combine: str, activation: str,
    edges: Tensor | None,
) -> Tensor:  # fmt: skip
    """(N, B, V, C) -> (N, B, classes), for weights by the names of a `GCN`'s parameters."""
    first = weights["blocks.0.attention"], weights["blocks.0.convolution"]
    plain = blocks == 1 and combine == "concat" and edges is None and "dense.bias" not in weights
    if plain and len(first[0][0]) == len(first[1][0]):
        logits = fast_logits(*first, weights["dense.weight"], x, activation)
        if logits is not None:
            return logits
    for i in range(blocks):
        attention = weights[f"blocks.{i}.attention"]
        hidden = stacked_block(
            attention if edges is None else attention * edges,
            weights[f"blocks.{i}.convolution"],
            weights.get(f"blocks.{i}.bias"),
            combine,
            activation,
            x,
        )
        if i + 1 < blocks:  # N, B, V, K * F
            x = hidden.permute(0, 3, 2, 1, 4).flatten(3)
    return stacked_dense(weights["dense.weight"], weights.get("dense.bias"), hidden)
