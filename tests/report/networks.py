"""Small pruned networks of every kind that a GCN can be."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from trellis.skeleton import GCN


def network(seed: int, keep: float = 0.4, **options: Any) -> GCN:
    """A GCN of three joints and two chunks with part of its weights set to zero."""
    torch.manual_seed(seed)
    sizes = {"nodes": 3, "channels": 6, "classes": 3, "heads": 2, "filters": 2}
    gcn = GCN(**sizes | options)
    with torch.no_grad():
        for weight in gcn.parameters():
            weight.mul_(torch.rand_like(weight) < keep)
            weight.requires_grad_(False)
    return gcn


@st.composite
def networks(draw: st.DrawFn, blocks: int = 2, chunks: int = 2) -> GCN:
    adjacency = draw(st.sampled_from([None, "limit", "fixed"]))
    options: dict[str, Any] = {}
    if adjacency is not None:
        graph = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 1, 1]])
        options = {"adjacency": graph, "edges": adjacency}
    return network(
        draw(st.integers(0, 10_000)),
        draw(st.sampled_from([0.1, 0.3, 0.6, 1.0])),
        blocks=draw(st.integers(1, blocks)),
        channels=3 * chunks,
        shared=draw(st.booleans()),
        combine=draw(st.sampled_from(["concat", "sum"])),
        **options,
    )
