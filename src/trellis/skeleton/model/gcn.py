"""The multi-head graph convolutional network of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import TrellisError
from ...limits import check_bytes
from ...saving.model import registered
from .gpu import fast_logits
from .windows import POOLS, pooled_windows

# The function of `GCN.forward` for a stack of networks, with few and large matrix products.


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "abs": torch.abs}


def stacked_block(
    attention: Tensor, convolution: Tensor, bias: Tensor | None, combine: str, activation: str,
    x: Tensor,
) -> Tensor:  # fmt: skip
    """Return the output of one block of N networks.

    attention (N, K, U, V), convolution (N, K or 1, C, F), bias (N, width), x (N, B, V, C)
    -> (N, K, U, B, F), or (N, 1, U, B, F) for summed heads. The batch follows the nodes, so that
    products need no transposed copies.
    """
    networks, heads, nodes, _ = attention.shape
    _, batch, _, channels = x.shape
    filters = convolution.shape[-1]
    kernels = convolution.shape[1]
    if channels <= filters:  # mix joints first, where the signal is smaller
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
    """Return the logits: (N, classes, U * K * F) on (N, K, U, B, F) -> (N, B, classes)."""
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
    edges: Tensor | None, windows: int,
) -> Tensor:  # fmt: skip
    """Return the logits of a stack, (N, B, V, C) -> (N, B, classes), for weights by name."""
    first = weights["blocks.0.attention"], weights["blocks.0.convolution"]
    if windows:
        attention = first[0] if edges is None else first[0] * edges
        hidden = pooled_windows(attention, first[1], x, windows, activation)
        return stacked_dense(weights["dense.weight"], None, hidden)
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


@registered("GCN")
class GCN(nn.Module):
    r"""The paper's graph convolutional network with learned attention over joints.

    A block maps node signals :math:`U^\top` (nodes × channels), for heads k = 1 … K, to

    .. math::  f(A^k \, U^\top \, W^k)

    with attention :math:`A^k` (nodes × nodes), convolution :math:`W^k` (channels × filters), and
    f the ReLU (as in the paper) or the absolute value, with which small networks were more accurate
    on most recordings held out (docs/results/choosing.md). A dense layer reads the output of the
    last block.

    With ``windows``, the filters slide over time. The first channels of a joint then are of W
    windows of the recording, equally many of each, and the others, of the whole recording, are
    added in every window. A filter gives two hidden units, its maximum and its mean over the
    windows:

    .. math::  \max_w \text{ and } \frac 1 W \sum_w f(A^k \, U_w^\top \, W^k_1
               + A^k \, U^\top \, W^k_2)

    Shapes: (batch, nodes, channels) -> (batch, classes).

    =================  =============================================  =========================
    parameter          shape                                          defaults of the paper
    =================  =============================================  =========================
    blocks.0.attention    (heads, nodes, nodes)                       16 × 21 × 21
    blocks.0.convolution  (heads, channels, filters)                  16 × 96 × 128
    dense                 (classes, heads · nodes · filters)          45 × 43,008
    =================  =============================================  =========================

    Args:
        nodes: The number of joints.
        channels: Input channels of each joint.
        classes: The number of classes.
        heads: The number of heads K.
        filters: Filters of each head.
        blocks: The number of blocks.
        shared: Whether all heads share one convolution.
        combine: "concat" to concatenate heads, or "sum" to sum them before f, as in the paper's
            text.
        bias: Whether blocks and dense layer have biases.
        adjacency: The initial attention of every head, (nodes, nodes) or (heads, nodes, nodes).
            None starts from random attention.
        edges: What ``adjacency`` means. "limit": attention exists only where it is not 0; other
            entries count as connections that are never live. "start": training may add edges.
            "fixed": attention is a constant, which is neither trained, pruned nor counted.
        activation: "relu" or "abs".
        windows: The number of time windows; 0 for none. It needs one block and neither biases, a
            shared convolution nor summed heads.
        per_window: The channels of a joint in each window.
        first_weights: How the first weights are drawn. "usual": attention normal / nodes,
            convolution normal · sqrt(2 / channels), dense layer as `torch.nn.Linear`. "fan-in":
            every tensor normal / sqrt(fan-in); that of the attention is the number of nodes.

    Raises:
        TrellisError: An argument is out of range.

    Example:
        >>> gcn = GCN(nodes=21, channels=96, classes=45)
        >>> sum(weight.numel() for weight in gcn.parameters())
        2139024
        >>> gcn(torch.zeros(2, 21, 96)).shape
        torch.Size([2, 45])
    """

    def __init__(
        self,
        nodes: int = 21,
        channels: int = 96,
        classes: int = 45,
        heads: int = 16,
        filters: int = 128,
        blocks: int = 1,
        shared: bool = False,
        combine: str = "concat",
        bias: bool = False,
        adjacency: Any = None,
        edges: str = "limit",
        activation: str = "relu",
        first_weights: str = "usual",
        windows: int = 0,
        per_window: int = 0,
    ) -> None:
        super().__init__()
        sizes = {"nodes": nodes, "channels": channels, "classes": classes, "heads": heads,
                 "filters": filters, "blocks": blocks}  # fmt: skip
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise TrellisError(f"{name}={size!r} is not a whole number from 1 up")
        _check_windows(windows, per_window, channels, blocks == 1 and not shared and not bias
                       and combine == "concat")  # fmt: skip
        rows = channels - max(windows - 1, 0) * per_window  # of the convolution
        if torch.get_default_device().type != "meta":  # on meta, sizes take no memory
            _check_sizes(shared=shared, concat=combine == "concat", pools=POOLS if windows else 1,
                         **sizes | {"channels": rows})  # fmt: skip
        if combine not in ("concat", "sum"):
            raise TrellisError(f"combine={combine!r} is unknown: 'concat' or 'sum'")
        if activation not in tuple(
            ACTIVATIONS
        ):  # a tuple: a damaged file may hold an unhashable value
            raise TrellisError(
                f"activation={activation!r} is unknown: {' or '.join(map(repr, ACTIVATIONS))}"
            )
        if edges not in ("limit", "start", "fixed"):
            raise TrellisError(f"edges={edges!r} is unknown: 'limit', 'start' or 'fixed'")
        if first_weights not in ("usual", "fan-in"):
            raise TrellisError(f"first_weights={first_weights!r} is unknown: 'usual' or 'fan-in'")
        self.sizes: dict[str, Any] = sizes | {
            "shared": shared, "combine": combine, "bias": bias, "activation": activation,
        }  # fmt: skip
        if windows:
            self.sizes |= {"windows": windows, "per_window": per_window}
        graph = None if adjacency is None else _graph(adjacency, heads, nodes)
        width = filters * (heads if combine == "concat" else 1)
        self.blocks = nn.Sequential(
            *(
                Block(nodes, rows if i == 0 else width, heads, filters, shared, combine, bias,
                      activation, graph, edges, first_weights, windows)
                for i in range(blocks)
            )
        )  # fmt: skip
        width *= POOLS if windows else 1
        self.dense = nn.Linear(nodes * width, classes, bias=bias)
        if first_weights == "fan-in" and not self.dense.weight.is_meta:
            nn.init.normal_(self.dense.weight, std=1 / math.sqrt(nodes * width))
            if bias:
                nn.init.zeros_(self.dense.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (batch, nodes, channels) -> (batch, classes)."""
        logits: Tensor = self.dense(self.blocks(x).flatten(1))
        return logits

    def stacked(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return the logits of a stack, (networks, batch, nodes, channels) -> (…, classes)."""
        edges: Any = self.blocks[0].edges
        held = {
            name: constant.expand(len(x), *constant.shape)
            for name, constant in self.named_buffers()
            if name.endswith(".attention")
        }
        sizes = self.sizes
        return stacked_gcn(
            {**weights, **held}, x, sizes["blocks"], sizes["combine"], sizes["activation"], edges,
            sizes.get("windows", 0),
        )  # fmt: skip

    def example(self) -> tuple[Tensor, ...]:
        """Return an example input of shape (1, nodes, channels), of zeros."""
        return (torch.zeros(1, self.sizes["nodes"], self.sizes["channels"]),)

    def described(self) -> dict[str, Any]:
        """Return the architecture for a saved model; its edges are stored among the tensors."""
        block: Any = self.blocks[0]
        held = "attention" in dict(block.named_buffers(recurse=False))
        return self.sizes | {"limited": block.edges is not None, "fixed": held}

    @classmethod
    def rebuilt(cls, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> GCN:
        """Return the network of a description and its tensors; the inverse of `described`."""
        sizes = dict(description)
        limited, fixed = sizes.pop("limited"), sizes.pop("fixed")
        if f"blocks.{int(sizes['blocks']) - 1}.attention" not in tensors:
            raise TrellisError(f"blocks={sizes['blocks']!r} and the tensors of other blocks")
        gcn = cls(**sizes)
        for block in gcn.blocks:
            assert isinstance(block, Block)
            like = block.attention  # torch.empty_like would import sympy, on meta
            if limited:
                block.edges = torch.empty(like.shape, dtype=like.dtype)
            if fixed:
                block.hold(torch.empty(like.shape, dtype=like.dtype))
        return gcn


class Block(nn.Module):
    """(batch, nodes, channels) -> (batch, nodes, width); width is heads * filters, or filters."""

    def __init__(
        self, nodes: int, channels: int, heads: int, filters: int, shared: bool, combine: str,
        bias: bool, activation: str, graph: Tensor | None, edges: str, first_weights: str,
        windows: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.combine, self.activation, self.windows = combine, activation, windows
        # Random and small, so that training decides which connections are large. Magnitude pruning
        # would spend its whole budget on an initial identity.
        attention = torch.empty(heads, nodes, nodes)
        kernels = 1 if shared else heads
        convolution = torch.empty(kernels, channels, filters)
        if (
            not attention.is_meta
        ):  # on meta, weights come from a file; drawing them would take a second
            fan_in = first_weights == "fan-in"
            attention = torch.randn(attention.shape) / (math.sqrt(nodes) if fan_in else nodes)
        if graph is not None:
            attention = graph * (1 + 0.1 * torch.randn(heads, nodes, nodes))
        self.attention: Tensor = nn.Parameter(attention)
        if not convolution.is_meta:
            gain = 1 if first_weights == "fan-in" else 2  # 2 makes up for the ReLU
            convolution = torch.randn(convolution.shape) * math.sqrt(gain / channels)
        self.convolution = nn.Parameter(convolution)
        width = heads * filters if combine == "concat" else filters
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        limit = graph is not None and edges == "limit"
        self.edges: Tensor | None
        self.register_buffer("edges", (graph != 0).float() if limit and graph is not None else None)
        if graph is not None and edges == "fixed":
            self.hold(graph.clone())

    def hold(self, attention: Tensor) -> None:
        """Replace the attention by a constant."""
        del self.attention
        self.register_buffer("attention", attention)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block, (batch, nodes, channels) -> (batch, nodes, width)."""
        attention = self.attention if self.edges is None else self.attention * self.edges
        shared = len(self.convolution) == 1
        channels, filters = self.convolution.shape[1:]
        if self.windows:
            return self._pooled(torch.einsum("kuv,bvc->bukc", attention, x))
        if channels <= filters:  # mix joints first, where the signal is smaller
            mixed = torch.einsum("kuv,bvc->bukc", attention, x)
            if shared:
                signal = mixed @ self.convolution[0]
            else:
                signal = torch.einsum("bukc,kcf->bukf", mixed, self.convolution)
        elif shared:
            signal = torch.einsum("kuv,bvf->bukf", attention, x @ self.convolution[0])
        else:
            convolved = torch.einsum("bvc,kcf->bvkf", x, self.convolution)
            signal = torch.einsum("kuv,bvkf->bukf", attention, convolved)
        signal = signal.flatten(2) if self.combine == "concat" else signal.sum(dim=2)
        return ACTIVATIONS[self.activation](signal if self.bias is None else signal + self.bias)

    def _pooled(self, mixed: Tensor) -> Tensor:
        """(batch, nodes, heads, channels of windows and of the whole) -> (batch, nodes, width)."""
        size = (mixed.shape[-1] - self.convolution.shape[1]) // (self.windows - 1)
        within = mixed[..., : self.windows * size].unflatten(-1, (self.windows, size))
        local = torch.einsum("bukwc,kcf->bukwf", within, self.convolution[:, :size])
        whole = torch.einsum(
            "bukc,kcf->bukf", mixed[..., self.windows * size :], self.convolution[:, size:]
        )
        signal = ACTIVATIONS[self.activation](local + whole[..., None, :])
        return torch.cat([signal.amax(-2), signal.mean(-2)], -1).flatten(2)


def _check_windows(windows: int, per_window: int, channels: int, plain: bool) -> None:
    for name, size in (("windows", windows), ("per_window", per_window)):
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise TrellisError(f"{name}={size!r} is not a whole number from 0 up")
    if windows == 0 == per_window:
        return
    if windows < 2 or not 0 < windows * per_window < channels:
        raise TrellisError(
            f"expected at least 2 windows, whose channels are fewer than channels={channels}, got "
            f"windows={windows} and per_window={per_window}"
        )
    if not plain:
        raise TrellisError(
            "windows need blocks=1, combine='concat', shared=False and bias=False; leave out "
            "windows, or the other option"
        )


def _check_sizes(
    *, nodes: int, channels: int, classes: int, heads: int, filters: int, blocks: int,
    shared: bool, concat: bool, pools: int,
) -> None:  # fmt: skip
    width = filters * (heads if concat else 1) * pools
    convolutions = (1 if shared else heads) * filters * (channels + (blocks - 1) * width)
    weights = blocks * heads * nodes**2 + convolutions + classes * nodes * width
    check_bytes(
        4 * weights, f"heads={heads}, filters={filters}, blocks={blocks}", "give smaller numbers"
    )


def _graph(adjacency: Any, heads: int, nodes: int) -> Tensor:
    graph = torch.as_tensor(adjacency, dtype=torch.float32)
    if graph.shape not in ((nodes, nodes), (heads, nodes, nodes)):
        raise TrellisError(
            f"adjacency has the shape {tuple(graph.shape)}; with nodes={nodes} and heads={heads} "
            f"it is {(nodes, nodes)} or {(heads, nodes, nodes)}"
        )
    if not graph.isfinite().all():
        raise TrellisError("adjacency holds a value that is not finite")
    return graph.expand(heads, nodes, nodes)
