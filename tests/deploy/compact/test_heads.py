"""Heads of the graph network, written one by one where they have little in common."""

from __future__ import annotations

import pytest
import torch

import trellis
from tests.deploy.compact.agreement import apart, drawn, outputs
from trellis.masks import plain_tensors
from trellis.skeleton import GCN

X = torch.zeros(1, 5, 6, dtype=torch.float64)


def line(nodes: int) -> torch.Tensor:
    """Each node with its neighbours."""
    return (torch.arange(nodes)[:, None] - torch.arange(nodes)).abs() < 2


@pytest.mark.parametrize("sparsity", [0.0, 0.7, 0.9, 0.97])
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": True}, {"blocks": 2}, {"shared": True}, {"combine": "sum"}, {"filters": 5},
     {"activation": "abs"},
     {"adjacency": line(5).float()}, {"adjacency": line(5).float(), "edges": "fixed"}],
    ids=lambda options: ",".join(options) or "plain",
)  # fmt: skip
def test_the_same_function(options: dict[str, object], sparsity: float) -> None:
    torch.manual_seed(1)
    sizes = {"nodes": 5, "channels": 6, "classes": 4, "heads": 4, "filters": 8}
    gcn = GCN(**(sizes | options)).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in gcn.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    if sparsity:
        trellis.prune(gcn, X, sparsity=sparsity, cover_outputs=False)
    small = trellis.compact(gcn, X)
    fresh = drawn((X,), 3)
    assert apart(outputs(gcn, fresh), outputs(small, fresh)) < 1e-9


def test_each_head_keeps_its_own_channels_and_filters() -> None:
    """Head k reads channel k alone and has one filter: four weights instead of a block of 4³."""
    gcn = GCN(nodes=5, channels=6, classes=4, heads=4, filters=8)
    masks = {name: torch.ones(p.shape, dtype=torch.bool) for name, p in gcn.named_parameters()}
    own = torch.zeros(4, 6, 8, dtype=torch.bool)
    own[range(4), range(4), range(4)] = True
    masks["blocks.0.convolution"] = own
    trellis.Masks(masks).apply(gcn)
    small = trellis.compact(gcn, X.float())
    shapes = {n: tuple(t.shape) for n, t in plain_tensors(small).items() if "convolution" in n}
    assert shapes == {f"blocks.0.convolution_head{k}": (1, 1) for k in range(4)}
    fresh = drawn((X.float(),), 3)
    assert apart(outputs(gcn, fresh), outputs(small, fresh)) < 1e-5


def test_heads_alike_stay_together() -> None:
    gcn = GCN(nodes=5, channels=6, classes=4, heads=4, filters=8)
    small = trellis.compact(gcn, X.float())
    assert set(dict(small.named_parameters())) == set(dict(gcn.named_parameters()))
