"""Which connections of a GCN are kept and which of them are live, without tracing it.

`trellis.audit` says the same of any model; a GCN's form is known, and half a dozen products of
zeros and ones tell what tracing takes seconds to find out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..masks.slots import named_slots
from ..skeleton import GCN


@dataclass(frozen=True)
class Living:
    """A parameter and how many of its connections there are, are kept, and are live."""

    name: str
    total: int
    kept: int
    live: int


@dataclass(frozen=True)
class Whole:
    """All layers of a network together."""

    layers: tuple[Living, ...]

    @property
    def total(self) -> int:
        return sum(layer.total for layer in self.layers)

    @property
    def kept(self) -> int:
        return sum(layer.kept for layer in self.layers)

    @property
    def live(self) -> int:
        return sum(layer.live for layer in self.layers)

    @property
    def live_percent(self) -> float:
        return 100 * self.live / self.kept if self.kept else 0.0


def living(model: GCN) -> tuple[Living, ...]:
    """Layer after layer, as an audit has them.

    >>> gcn = GCN(nodes=2, channels=3, classes=2, heads=1, filters=2)
    >>> with torch.no_grad():
    ...     _ = gcn.dense.weight[:, 1].zero_(), gcn.dense.weight[:, 3].zero_()
    >>> for layer in living(gcn):
    ...     print(layer)
    Living(name='blocks.0.attention', total=4, kept=4, live=4)
    Living(name='blocks.0.convolution', total=6, kept=6, live=3)
    Living(name='dense.weight', total=8, kept=4, live=4)
    """
    kept = {
        name: slot.value().detach() != 0 if slot.mask is None else slot.mask.bool()
        for name, slot in named_slots(model)
        if not name.endswith("bias")
    }
    live = _live(model, {name: mask.float() for name, mask in kept.items()})
    return tuple(
        Living(name, mask.numel(), int(mask.sum()), int(live[name].sum()))
        for name, mask in kept.items()
    )


def _live(model: GCN, kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``kept`` are zeros and ones. A message says whether anything gets through: a unit is reached
    (nodes, channels), or leads to a class (nodes, heads, filters)."""
    heads, filters = model.sizes["heads"], model.sizes["filters"]
    nodes, summed = model.sizes["nodes"], model.sizes["combine"] == "sum"
    edges = [_edges(model, b, kept) for b in range(len(model.blocks))]  # heads, nodes, nodes
    kernels = [
        kept[f"blocks.{b}.convolution"].expand(heads, -1, -1) for b in range(len(model.blocks))
    ]
    reached = [torch.ones(nodes, model.sizes["channels"])]
    for edge, kernel in zip(edges, kernels, strict=True):
        out = _any("kuv,vc,kcf->ukf", edge, reached[-1], kernel)
        reached.append(_any("ukf->uf", out) if summed else out.flatten(1))

    found = {"dense.weight": kept["dense.weight"] * reached[-1].flatten()}
    wanted = _any("of->f", kept["dense.weight"]).reshape(nodes, -1)
    for number in reversed(range(len(edges))):
        edge, kernel, before = edges[number], kernels[number], reached[number]
        out = wanted[:, None].expand(-1, heads, -1) if summed else (
            wanted.reshape(nodes, heads, filters))  # fmt: skip
        needed = _any("ukf,kcf->kuc", out, kernel)
        mixed = _any("kuv,vc->kuc", edge, before)
        used = kernel * _any("kuc,ukf->kcf", mixed, out)
        shared = len(kept[f"blocks.{number}.convolution"]) == 1
        found[f"blocks.{number}.convolution"] = _any("kcf->cf", used)[None] if shared else used
        found[f"blocks.{number}.attention"] = edge * _any("vc,kuc->kuv", before, needed)
        wanted = _any("kuc,kuv->vc", needed, edge)
    return found


def _edges(model: GCN, number: int, kept: Mapping[str, Tensor]) -> Tensor:
    """Where the attention of a block leads from joint to joint: an attention that is fixed is none
    of the connections, and yet is a wire where it is not zero."""
    name = f"blocks.{number}.attention"
    block: Any = model.blocks[number]
    found: Tensor = kept[name] if name in kept else (block.attention != 0).float()
    return found if block.edges is None else found * (block.edges != 0)


def _any(pattern: str, *operands: Tensor) -> Tensor:
    """Whether a sum of products is anything at all, as zeros and ones."""
    result: Tensor = torch.einsum(pattern, *operands)
    return (result > 0).float()
