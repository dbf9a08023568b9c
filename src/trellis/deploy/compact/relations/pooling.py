"""Pooling, resampling and message passing: all positions stay, channels are tied."""

from __future__ import annotations

from typing import Any

from ....graph.registry import aten
from ..program import Op, Ref
from ..reading import Network
from .aligned import Aligned
from .relation import Relation, relation_for

WHOLE = "positions that are pooled or resampled stay whole"
_POOLS = [f"{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_avg") for n in (1, 2, 3)]
_UPS = ["nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d"]


@relation_for([*aten(" ".join(_POOLS)), *(f"aten::upsample_{name}" for name in _UPS)])
def pool(op: Op, network: Network) -> Relation | None:
    places = int(op.target.split(".")[1][-2])
    return _along(op, network, places)


def _along(op: Op, network: Network, places: int) -> Relation | None:
    x = next(iter(op.refs()))
    if len(list(op.refs())) != 1 or op.name not in network.values:
        return None
    rank = len(network.values[x].shape)
    lead = [str(a) for a in range(rank - places)]
    labels: dict[str, list[Any]] = {
        x: [*lead, *(f"in{i}" for i in range(places))],
        op.name: [*lead, *(f"out{i}" for i in range(places))],
    }
    full = {f"{side}{i}": WHOLE for side in ("in", "out") for i in range(places)}
    return Aligned(op, network, labels, full)


@relation_for(aten("scatter_add scatter_reduce"))
def scatter(op: Op, network: Network) -> Relation | None:
    """Keep the axis along which entries are scattered whole, and tie the others."""
    x, dim, index, source = op.args[:4]
    names = [a.name for a in (x, index, source) if isinstance(a, Ref)]
    shapes = [network.values[n].shape for n in names]
    if len(names) != 3 or len({len(s) for s in shapes}) != 1:
        return None
    rank = len(shapes[0])
    axis = dim % rank
    if any(len({s[a] for s in shapes}) != 1 for a in range(rank) if a != axis):
        return None
    labels: dict[str, list[Any]] = {}
    for place, name in enumerate([*names, op.name]):
        labels[name] = [f"sent{place}" if a == axis else str(a) for a in range(rank)]
    full = {f"sent{i}": "messages are sent along it" for i in range(4)}
    return Aligned(op, network, labels, full)


@relation_for(aten("embedding"))
def embedding(op: Op, network: Network) -> Relation | None:
    """Keep all rows of the table, because any id may come; tie its columns to the result."""
    table, ids = list(op.refs())
    lead = [f"i{a}" for a in range(len(network.values[ids].shape))]
    labels: dict[str, list[Any]] = {table: ["row", "d"], ids: list(lead), op.name: [*lead, "d"]}
    full = {"row": "any id may come"} | {label: "ids stay whole" for label in lead}
    return Looked(op, network, labels, full)


class Looked(Aligned):
    """Look up rows of a table by index."""

    def weights(self) -> list[str]:
        # A dead connection of an embedding leads to a unit that changes no output.
        return [next(iter(self.op.refs()))]
