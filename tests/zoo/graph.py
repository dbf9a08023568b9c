"""Graph convolutions over a skeleton: the paper's GCN, ST-GCN, an adaptive adjacency."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .seeded import Example, seeded, settle

Form = Literal["steps", "einsum", "shared"]


class Heads(nn.Module):
    """relu(A_k x W_k) for every head k; x [b, n, s] -> [b, K, n, F].

    The three forms are one formula: in two steps, as an einsum of three operands, and with
    one convolution for all heads.
    """

    def __init__(self, nodes: int, channels: int, heads: int, filters: int, form: Form) -> None:
        super().__init__()
        self.form = form
        self.A = nn.Parameter(torch.randn(heads, nodes, nodes) / nodes**0.5)
        shape = (channels, filters) if form == "shared" else (heads, channels, filters)
        self.W = nn.Parameter(torch.randn(shape) / channels**0.5)

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "shared":
            return F.relu(torch.einsum("kuv,df,bvd->bkuf", self.A, self.W, x))
        if self.form == "einsum":
            return F.relu(torch.einsum("kuv,kdf,bvd->bkuf", self.A, self.W, x))
        x = torch.einsum("kuv,bvd->bkud", self.A, x)
        return F.relu(torch.einsum("bkud,kdf->bkuf", x, self.W))


class GCN(nn.Module):
    """Blocks of heads, concatenated, then a dense layer; no biases."""

    def __init__(
        self,
        nodes: int,
        channels: int,
        classes: int,
        heads: int,
        filters: int,
        form: Form,
        blocks: int,
    ) -> None:
        super().__init__()
        widths = [channels] + [heads * filters] * (blocks - 1)
        self.blocks = nn.ModuleList(Heads(nodes, w, heads, filters, form) for w in widths)
        self.dense = nn.Linear(nodes * heads * filters, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x).transpose(1, 2).flatten(2)  # [b, n, K * F]
        return self.dense(x.flatten(1))


@seeded
def gcn(
    nodes: int = 21,
    channels: int = 96,
    classes: int = 45,
    heads: int = 16,
    filters: int = 128,
    form: Form = "steps",
    blocks: int = 1,
) -> Example:
    """The paper's network; x [1, nodes, channels] -> [1, classes]; 2,139,024 weights."""
    model = GCN(nodes, channels, classes, heads, filters, form, blocks)
    return model, (torch.randn(1, nodes, channels),)


class STGCN(nn.Module):
    """ST-GCN's block (Yan et al., 2018), its adjacency learned, or fixed and weighted."""

    edges: Tensor

    def __init__(self, fan_in: int, fan_out: int, parts: int, joints: int, learned: bool) -> None:
        super().__init__()
        self.parts = parts
        self.learned = learned
        self.A = nn.Parameter(torch.randn(parts, joints, joints))
        self.register_buffer("edges", (torch.rand(parts, joints, joints) < 0.5).float())
        self.gcn = nn.Conv2d(fan_in, parts * fan_out, 1)
        self.norm1 = nn.BatchNorm2d(fan_out)
        self.tcn = nn.Conv2d(fan_out, fan_out, (3, 1), padding=(1, 0))
        self.norm2 = nn.BatchNorm2d(fan_out)
        self.residual = nn.Conv2d(fan_in, fan_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        adjacency = self.A if self.learned else self.A * self.edges
        y = self.gcn(x)
        n, kc, t, v = y.shape
        y = y.view(n, self.parts, kc // self.parts, t, v)
        y = torch.einsum("nkctv,kvw->nctw", y, adjacency).contiguous()
        y = self.norm2(self.tcn(F.relu(self.norm1(y))))
        return F.relu(y + self.residual(x))


@seeded
def stgcn(learned: bool = True) -> Example:
    """x [1, 3, 6, 5] (channels, frames, joints) -> [1, 4, 6, 5]."""
    return settle(STGCN(3, 4, 3, 5, learned)), (torch.randn(1, 3, 6, 5),)


class AdaptiveGraph(nn.Module):
    """A fixed graph plus a learned one: relu((A + B) x W), then a dense layer."""

    A: Tensor

    def __init__(self, nodes: int, channels: int, filters: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("A", (torch.rand(nodes, nodes) < 0.4).float())
        self.B = nn.Parameter(torch.randn(nodes, nodes))
        self.convolution = nn.Linear(channels, filters)
        self.dense = nn.Linear(nodes * filters, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.matmul(self.A + self.B, x)  # [b, n, channels]
        return self.dense(F.relu(self.convolution(x)).flatten(1))


@seeded
def adaptive_graph() -> Example:
    """x [1, 5, 3] -> [1, 4]."""
    return AdaptiveGraph(5, 3, 6, 4), (torch.randn(1, 5, 3),)
