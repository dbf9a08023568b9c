"""Sums and means over axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ....graph.registry import aten
from ..axis_places import AxisPlaces
from ..program import Op
from ..reading import Network
from ..writing import Writer
from .aligned import Aligned, uniform
from .relation import Barrier, Relation, relation_for


def _axes(op: Op, network: Network, x: str) -> list[int] | None:
    call = Barrier(op, network).call
    rank = len(network.values[x].shape)
    dim = call.arguments.get("dim")
    if dim is None or dim == []:
        return None
    return sorted({d % rank for d in ([dim] if isinstance(dim, int) else dim)})


def _labels(
    network: Network, x: str, op: Op, axes: Sequence[int], keepdim: bool
) -> dict[str, list[str | None]]:
    rank = len(network.values[x].shape)
    own: list[str | None] = [str(a) for a in range(rank)]
    out: list[str | None] = (
        [None if a in axes else own[a] for a in range(rank)]
        if keepdim
        else [own[a] for a in range(rank) if a not in axes]
    )
    return {x: own, op.name: out}


@relation_for(aten("amax amin logsumexp var std linalg_vector_norm nansum prod any all"))
def extreme(op: Op, network: Network) -> Relation | None:
    x = next(iter(op.refs()))
    axes = _axes(op, network, x)
    if axes is None or op.name not in network.values:
        return None
    keepdim = bool(Barrier(op, network).call.arguments.get("keepdim", False))
    name = op.target.split(".")[1]
    full = {str(a): f"`{name}` is taken over all of it" for a in axes}
    return Aligned(op, network, _labels(network, x, op, axes, keepdim), full)


@relation_for(aten("sum mean"))
def total(op: Op, network: Network) -> Relation | None:
    x = next(iter(op.refs()))
    axes = _axes(op, network, x)
    if axes is None or not network.values[x].driven:
        return None
    return Total(op, network, x, axes)


class Total(Aligned):
    """Sum over the places that stay, and add what removed places contributed as a constant.

    A mean is rescaled, because it divided by the number of all places.
    """

    def __init__(self, op: Op, network: Network, x: str, axes: list[int]) -> None:
        keepdim = bool(Barrier(op, network).call["keepdim"])
        super().__init__(op, network, _labels(network, x, op, axes, keepdim))
        self.x, self.axes = x, axes
        for axis in axes:
            self.ends.pop(str(axis))

    def close(self, kept: AxisPlaces) -> None:
        super().close(kept)
        for axis in self.axes:
            if axis in self.value(self.x).open:
                kept.fill(self.x, axis, "it is one with the batch")

    def write(self, writer: Writer) -> Any:
        out = writer.add(self.call.changed(self.op.name, self=writer.place(self.x)))
        value, sizes = self.value(self.x), writer.kept.size(self.x)
        part = 1.0
        for axis in self.axes:
            part *= sizes[axis] / value.shape[axis]
        if part == 1:
            return out
        if self.op.target.startswith("aten.mean"):
            out = writer.call(f"{self.op.name}_of", "aten.mul.Scalar", out, part)
        gone = torch.ones((), dtype=torch.bool)
        for axis in self.axes:
            stays = torch.from_numpy(writer.kept.places(self.x, axis))
            shape = [1] * len(value.shape)
            shape[axis] = -1
            gone = gone & stays.reshape(shape)
        still = torch.where(gone, torch.zeros_like(value.tensor), value.still())
        call = self.call
        rest = dict(call.arguments)
        rest.pop("self")
        dims, keep = rest.pop("dim"), rest.pop("keepdim")
        constant = (torch.mean if "mean" in self.op.target else torch.sum)(still, dims, keep)
        matters = self.value(self.op.name).matters
        if matters is None:
            return out
        constant = torch.where(matters, constant, torch.zeros_like(constant))
        if not bool(constant.any()):
            return out
        thin = uniform(writer.cut(self.op.name, constant), writer.cut(self.op.name, matters))
        held = writer.constant(f"{self.op.name}.shift", thin, learns=True)
        return writer.call(f"{self.op.name}_shifted", "aten.add.Tensor", out, held)
