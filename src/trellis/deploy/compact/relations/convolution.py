"""Convolutions, pooling, resampling and message passing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....graph.export import aten
from ..program import Op, Ref
from ..reading import Network
from ..writing import NEEDED, AxisPlaces, Codes, Writer, product, projections
from .contraction import GATHER, Biased, Operand
from .relation import Aligned, Barrier, Relation, relation_for

GROUPS = "the groups of a convolution must stay alike"


@relation_for(
    aten("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution")
)
def convolution(op: Op, network: Network) -> Relation | None:
    call = Barrier(op, network).call
    x, w = call["input"].name, call["weight"].name
    if network.values[w].driven or not network.values[x].driven:
        return None
    bias = call["bias"].name if isinstance(call["bias"], Ref) else None
    transposed = "conv_transpose" in op.target or bool(call.arguments.get("transposed", False))
    return Convolution(op, network, x, w, bias, transposed)


class Convolution(Biased):
    """Compact a convolution of x (N, g·C, *S) with w (g·O, C, *k) to (N, g·O, *S').

    A transposed convolution has w (g·C, O, *k). All positions and taps stay. A group stays or goes
    as a whole, and every group that stays keeps the same channels. With one group, any channels may
    go.
    """

    def __init__(
        self, op: Op, network: Network, x: str, w: str, bias: str | None, transposed: bool
    ) -> None:
        super().__init__(op, network, [], (), bias)
        self.operands = [Operand(x, ()), Operand(w, ())]
        self.signals = {x}
        self.x, self.w, self.transposed = x, w, transposed
        self.groups = int(self.call["groups"])
        taps = len(self.value(w).shape) - 2
        self.axis = len(self.value(x).shape) - taps - 1
        self.channel = self.axis
        wide = self.value(w).shape
        self.heads = wide[1] if transposed else wide[0] // self.groups
        self.tails = wide[0] // self.groups if transposed else wide[1]

    # `outer` lists axes of size groups · heads; `inner` lists weight axes of size groups · tails.

    def outer(self) -> list[tuple[str, int]]:
        ends = [(self.op.name, self.axis)]
        if self.bias is not None:
            ends.append((self.bias, 0))
        return ends if self.transposed else [*ends, (self.w, 0)]

    def inner(self) -> list[tuple[str, int]]:
        return [(self.w, 0)] if self.transposed else []

    def close(self, kept: AxisPlaces) -> None:
        for name in (self.x, self.w, self.op.name):
            for axis in range(len(self.value(name).shape)):
                channels = axis == self.axis if name != self.w else axis < 2
                if not channels:
                    kept.fill(name, axis, "positions and taps of a convolution stay whole")
        g, heads, tails = self.parts(kept)
        for end in self.outer():
            kept.add(*end, product([g, heads]), GROUPS)
        for end in self.inner():
            kept.add(*end, product([g, tails]), GROUPS)
        kept.add(self.w, 1, heads if self.transposed else tails, GROUPS)
        kept.add(self.x, self.axis, product([g, tails]), GROUPS)

    def parts(self, kept: AxisPlaces) -> tuple[Codes, Codes, Codes]:
        """Return which groups stay, and which heads and tails stay in each group."""
        g = np.zeros(self.groups, np.int32)
        heads, tails = np.zeros(self.heads, np.int32), np.zeros(self.tails, np.int32)
        for end in self.outer():
            parts = projections(kept.code(*end), (self.groups, self.heads))
            g, heads = _either(g, parts[0]), _either(heads, parts[1])
        for end in self.inner():
            parts = projections(kept.code(*end), (self.groups, self.tails))
            g, tails = _either(g, parts[0]), _either(tails, parts[1])
        if self.transposed:
            heads = _either(heads, kept.code(self.w, 1))
        else:
            tails = _either(tails, kept.code(self.w, 1))
        for part in (g, heads, tails):  # a convolution needs at least one of each
            if not part.any() and kept.places(self.op.name, self.axis).any():
                part[0] = kept.reason(NEEDED)
        return g, heads, tails

    def settle(self, kept: AxisPlaces) -> None:
        have = kept.places(self.x, self.axis)
        g, _, tails = self.parts(kept)
        code = product([g, tails]) > 0
        if have.sum() > code.sum() > GATHER * have.sum() and self.groups == 1:
            end = (self.w, 0) if self.transposed else (self.w, 1)
            kept.add(*end, kept.code(self.x, self.axis), "leaving out so few gains nothing")

    def operand(self, writer: Writer, operand: Operand) -> Any:
        if operand.name != self.x:
            return writer.place(operand.name)
        wanted: list[list[int] | None] = [None] * len(self.value(self.x).shape)
        wanted[self.axis] = np.flatnonzero(self.read(writer.kept)).tolist()
        return writer.narrowed(self.x, wanted)

    def read(self, kept: AxisPlaces) -> Codes:
        g, _, tails = self.parts(kept)
        return product([g, tails])

    def changes(self, writer: Writer, given: list[Any]) -> dict[str, Any]:
        g, _, _ = self.parts(writer.kept)
        return {"input": given[0], "weight": given[1], "groups": int((g > 0).sum())}

    def remaining(self, writer: Writer, operand: Operand, whole: Tensor) -> Tensor:
        if operand.name == self.x:
            stays = torch.from_numpy(self.read(writer.kept) > 0)
            shape = [1] * whole.ndim
            shape[self.axis] = -1
            return torch.where(stays.reshape(shape), whole, torch.zeros_like(whole))
        value = self.value(self.w)
        if value.live is not None and self.is_pruned(writer, self.w):
            whole = torch.where(value.live, whole, torch.zeros_like(whole))
        return whole


def _either(a: Codes, b: Codes) -> Codes:
    """Unite two sets of places; the code for live wins over a reason."""
    found: Codes = np.where((a > 0) & (b > 0), np.minimum(a, b), np.maximum(a, b)).astype(np.int32)
    return found


# Pooling, resampling and message passing: all positions stay, channels are tied.


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
