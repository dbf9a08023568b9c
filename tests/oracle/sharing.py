"""Random networks whose connections have many uses: recurrent cells by hand, the GCN."""

import numpy as np
import torch
from torch import Tensor, nn

from .layers import Choose, Units, add, choose_activation, each, inputs, linear, multiply
from .network import Network
from .scalar import ScalarGraph


class Recurrent(nn.Module):
    """h = activation(W x + U h) from a state of zeros; gated, h = z h + (1 - z) of that."""

    def __init__(self, width: int, hidden: int, classes: int, bias: bool, gated: bool) -> None:
        super().__init__()
        self.W = nn.Linear(width, hidden, bias)
        self.U = nn.Linear(hidden, hidden, bias=False)
        self.Z = nn.Linear(width, hidden, bias) if gated else None
        self.head = nn.Linear(hidden, classes, bias)
        self.activation: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], self.U.in_features)
        for step in range(x.shape[1]):
            fresh = self.activation(self.W(x[:, step]) + self.U(h))
            if self.Z is None:
                h = fresh
            else:
                z = torch.sigmoid(self.Z(x[:, step]))
                h = z * h + (1 - z) * fresh
        return self.head(h)


def recurrent(choose: Choose) -> Network:
    """One to four steps."""
    width, hidden, steps = choose(1, 2), choose(1, 3), choose(1, 4)
    model = Recurrent(width, hidden, choose(1, 2), bool(choose(0, 1)), bool(choose(0, 1)))
    model.activation = activation = choose_activation(choose)
    graph = ScalarGraph()
    x = inputs(graph, steps, width)
    h: Units = np.array([graph.constant(nonzero=False) for _ in range(hidden)])
    for step in range(steps):
        total = add(graph, linear(graph, model.W, "W", x[step]), linear(graph, model.U, "U", h))
        fresh = activation.units(graph, total)
        if model.Z is None:
            h = fresh
        else:
            z = linear(graph, model.Z, "Z", x[step])
            z = each(z, lambda tail: graph.function(tail, zero_at_zero=False))
            rest = each(z, lambda tail: graph.wires([graph.constant(), tail]))  # 1 - z
            h = add(graph, multiply(graph, z, h), multiply(graph, rest, fresh))
    graph.outputs = linear(graph, model.head, "head", h).tolist()
    return Network("recurrent", model, (torch.randn(1, steps, width),), graph)


FORMS = ("steps", "einsum", "shared")


class GCN(nn.Module):
    """The multi-head GCN of the paper: relu(A_k x W_k), heads concatenated, a dense layer."""

    def __init__(self, nodes: int, widths: list[int], heads: int, classes: int, form: str) -> None:
        super().__init__()
        self.form = form
        self.A = nn.ParameterList()
        self.W = nn.ParameterList()
        for index, filters in enumerate(widths[1:]):
            channels = widths[index] * (heads if index else 1)
            lead = () if form == "shared" else (heads,)
            self.A.append(nn.Parameter(torch.randn(heads, nodes, nodes)))
            self.W.append(nn.Parameter(torch.randn(*lead, channels, filters)))
        self.dense = nn.Linear(nodes * heads * widths[-1], classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for A, W in zip(self.A, self.W, strict=True):
            if self.form == "shared":
                y = torch.einsum("kuv,df,bvd->bkuf", A, W, x)
            elif self.form == "einsum":
                y = torch.einsum("kuv,kdf,bvd->bkuf", A, W, x)
            else:
                y = torch.einsum("bkud,kdf->bkuf", torch.einsum("kuv,bvd->bkud", A, x), W)
            x = torch.relu(y).transpose(1, 2).flatten(2)  # [b, n, K * F]
        return self.dense(x.flatten(1))


def gcn(choose: Choose) -> Network:
    """One or two blocks, one or two heads, in each of the three forms."""
    nodes, heads = choose(1, 3), choose(1, 2)
    widths = [choose(1, 2) for _ in range(choose(2, 3))]
    model = GCN(nodes, widths, heads, choose(1, 2), FORMS[choose(0, 2)])
    graph = ScalarGraph()
    x = inputs(graph, nodes, widths[0])
    for block, W in enumerate(model.W):
        channels, filters = W.shape[-2:]
        mixed = {
            (k, u, d): graph.sum(
                (int(x[v, d]), (f"A.{block}", (k * nodes + u) * nodes + v)) for v in range(nodes)
            )
            for k in range(heads)
            for u in range(nodes)
            for d in range(channels)
        }
        y = np.empty((nodes, heads, filters), dtype=int)
        for u, k, f in np.ndindex(y.shape):
            offset = 0 if model.form == "shared" else k * channels * filters
            total = graph.sum(
                (mixed[k, u, d], (f"W.{block}", offset + d * filters + f)) for d in range(channels)
            )
            y[u, k, f] = graph.function(total, zero_at_zero=True)
        x = y.reshape(nodes, heads * filters)
    graph.outputs = linear(graph, model.dense, "dense", x.flatten()).tolist()
    return Network("gcn", model, (torch.randn(1, nodes, widths[0]),), graph)
