"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from ....graph.registry import aten
from ..axis_places import AxisPlaces
from ..program import Op, Ref
from ..reading import Network
from ..writing import Writer
from .aligned import Aligned
from .relation import Barrier, Relation, relation_for


@relation_for(aten("scaled_dot_product_attention"))
def attention(op: Op, network: Network) -> Relation | None:
    call = Barrier(op, network).call
    names = [call[n].name for n in ("query", "key", "value")]
    ranks = {len(network.values[n].shape) for n in names}
    if call["enable_gqa"] or len(set(names)) != 3 or len(ranks) != 1:
        return None
    return Attention(op, network, names)


class Attention(Aligned):
    """Compact attention: q (..., L, D), k (..., S, D), v (..., S, E) to (..., L, E).

    All positions stay. Features of q and k are tied, and so are features of v and of the result.
    """

    def __init__(self, op: Op, network: Network, names: list[str]) -> None:
        rank = len(network.values[names[0]].shape)
        lead = [f"b{i}" for i in range(rank - 2)]
        q, k, v = names
        labels: dict[str, Any] = {
            q: [*lead, "l", "d"], k: [*lead, "s", "d"], v: [*lead, "s", "e"],
            op.name: [*lead, "l", "e"],
        }  # fmt: skip
        why = "attention reads every position"
        super().__init__(op, network, labels, {"l": why, "s": why})
        if isinstance(mask := self.call["attn_mask"], Ref):
            out = network.values[op.name].shape
            shape = network.values[mask.name].shape
            scores = [*out[:-1], network.values[k].shape[-2]]
            skip = rank - len(shape)
            for axis, size in enumerate(shape):
                place = skip + axis
                if size == scores[place] and place < rank - 2:
                    self.ends[lead[place]].append((mask.name, axis))
                else:
                    self.ends[f"mask{axis}"] = [(mask.name, axis)]
                    self.full[f"mask{axis}"] = why
        self.q, self.k = q, k

    def close(self, kept: AxisPlaces) -> None:
        super().close(kept)
        # If a feature is constant in both q and k, its product shifts the scores. Attention has no
        # bias that could hold this constant, so the feature stays.
        axis = len(self.value(self.q).shape) - 1
        gone = torch.from_numpy(~kept.places(self.q, axis))
        q, k = self.value(self.q), self.value(self.k)
        if q.matters is None or k.matters is None or not bool(gone.any()):
            return
        used = [
            torch.where(v.matters, v.still(), torch.zeros_like(v.still())).flatten(0, -2).any(0)
            for v in (q, k)
            if v.matters is not None
        ]
        both = (used[0] & used[1] & gone).numpy()
        kept.add(self.q, axis, both.astype("int32"), "it shifts the scores of attention")

    def write(self, writer: Writer) -> Any:
        read = {
            name: writer.read(self.call[name])
            for name in ("query", "key", "value", "attn_mask")
            if isinstance(self.call[name], Ref)
        }
        scale = self.call["scale"]
        if scale is None and not writer.kept.places(self.q, -1).all():
            scale = 1 / math.sqrt(self.value(self.q).shape[-1])
        return writer.add(self.call.changed(self.op.name, **read, scale=scale))
