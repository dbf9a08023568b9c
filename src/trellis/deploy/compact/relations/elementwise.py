"""Elementwise functions, norms, sums and means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ....graph.export import aten
from ....graph.rules.elementwise import NOT_ZERO_AT_ZERO, ZERO_AT_ZERO
from ..program import Op, Ref
from ..reading import Network
from ..writing import AxisPlaces, Writer
from .relation import Aligned, Barrier, Elementwise, Relation, relation_for, uniform

UNARY = (set(ZERO_AT_ZERO) | set(NOT_ZERO_AT_ZERO)) - set(aten("fill_diagonal"))
UNARY |= set(aten("exp exp2 sigmoid hardtanh clamp clip clamp_min clamp_max threshold pow"))
BINARY = aten(
    "add sub rsub mul div true_divide floor_divide remainder fmod maximum minimum fmax fmin atan2 "
    "hypot eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor "
    "__and__ __or__ logaddexp logaddexp2 copysign xlogy where masked_fill addcmul lerp"
)
# In eval mode these return their input.
NOTHING = set(aten("dropout feature_dropout alpha_dropout feature_alpha_dropout alias detach"))


@relation_for(sorted(UNARY | set(BINARY)))
def elementwise(op: Op, network: Network) -> Relation | None:
    if op.name not in network.values:
        return None
    space, name, _ = op.target.split(".")
    if f"{space}::{name}" in NOTHING:
        return Nothing(op, network)
    return Elementwise(op, network)


class Nothing(Elementwise):
    """An operation that returns its input unchanged; it is left out."""

    def write(self, writer: Writer) -> Any:
        return writer.place(next(iter(self.op.refs())))


@relation_for(aten("prelu _prelu_kernel"))
def prelu(op: Op, network: Network) -> Relation | None:
    """Tie the slopes to the channels, unless one slope serves all channels."""
    x, slope = list(op.refs())
    shape = network.values[x].shape
    own = [str(axis) for axis in range(len(shape))]
    slopes = network.values[slope].shape
    channel = "1" if len(shape) > 1 else "0"
    labels = [channel if size > 1 else None for size in slopes]
    return Aligned(op, network, {x: own, slope: labels, op.name: own})


@relation_for(aten("glu"))
def glu(op: Op, network: Network) -> Relation | None:
    return Halves(op, network)


class Halves(Relation):
    """Compact a · σ(b), where a and b are the halves of an axis and keep the same places."""

    def __init__(self, op: Op, network: Network) -> None:
        super().__init__(op, network)
        self.x = next(iter(op.refs()))
        self.axis = self.call["dim"] % len(self.value(self.x).shape)

    def close(self, kept: AxisPlaces) -> None:
        why = "a gated unit needs both its halves"
        half = self.value(self.op.name).shape[self.axis]
        for axis in range(len(self.value(self.x).shape)):
            if axis != self.axis:
                kept.tie([(self.x, axis), (self.op.name, axis)], why)
        own = kept.code(self.x, self.axis)
        kept.add(self.op.name, self.axis, _joined(own[:half], own[half:]), why)
        out = kept.code(self.op.name, self.axis)
        kept.add(self.x, self.axis, np.tile(out, 2), why)

    def write(self, writer: Writer) -> Any:
        args, kwargs = writer.read((self.op.args, dict(self.op.kwargs)))
        return writer.add(Op(self.op.name, self.op.target, args, kwargs))


def _joined(a: Any, b: Any) -> Any:
    """Unite two sets of places; the code for live wins over a reason."""
    return np.where((a > 0) & (b > 0), np.minimum(a, b), np.maximum(a, b))


@relation_for(aten("zeros ones full new_zeros new_ones new_full"))
def maker(op: Op, network: Network) -> Relation | None:
    """Create a tensor of zeros, ones or another number."""
    return Made(op, network)


class Made(Relation):
    """Create a constant tensor of the size that its readers need."""

    def touched(self) -> list[str]:
        return [self.op.name]

    def close(self, kept: AxisPlaces) -> None:
        for axis in self.value(self.op.name).open:
            kept.fill(self.op.name, axis, "its size is that of the batch")

    def write(self, writer: Writer) -> Any:
        sizes = writer.kept.size(self.op.name)
        given = writer.read(self.call["size"])
        value = self.value(self.op.name)
        changes: dict[str, Any] = {
            "size": [given[a] if a in value.open else n for a, n in enumerate(sizes)]
        }
        if "self" in self.call:  # only its type is read
            changes["self"] = writer.read(self.call["self"])
        return writer.add(self.call.changed(self.op.name, **changes))


class Like(Aligned):
    """Create a constant tensor of the size of another value."""


@relation_for(aten("zeros_like ones_like full_like empty_like"))
def like(op: Op, network: Network) -> Relation | None:
    x = next(iter(op.refs()))
    own = [str(axis) for axis in range(len(network.values[x].shape))]
    return Like(op, network, {x: own, op.name: own})


@relation_for(["aten::sym_size"])
def counted(op: Op, network: Network) -> Relation | None:
    return Counted(op, network)


class Counted(Relation):
    """Return the size of an axis, such as the batch; all places of this axis stay."""

    def close(self, kept: AxisPlaces) -> None:
        x = self.call["self"]
        assert isinstance(x, Ref)
        kept.fill(x.name, self.call["dim"] % len(self.value(x.name).shape), "its size is asked for")

    def write(self, writer: Writer) -> Any:
        return writer.add(self.call.changed(self.op.name, self=writer.read(self.call["self"])))


# Normalization: every place that enters a statistic must stay.


@relation_for(aten("layer_norm rms_norm"))
def layer_norm(op: Op, network: Network) -> Relation | None:
    call = Barrier(op, network).call
    x = call["input"].name
    rank, normed = len(network.values[x].shape), len(call["normalized_shape"])
    own = [str(a) for a in range(rank)]
    labels: dict[str, list[str | None]] = {x: list(own), op.name: list(own)}
    for name in ("weight", "bias"):
        if isinstance(call.arguments.get(name), Ref):
            labels[call[name].name] = list(own[rank - normed :])
    kind = "layer norm" if "layer_norm" in op.target else "root-mean-square norm"
    why = f"the statistics of a {kind} are taken over all of it"
    full = {own[a]: why for a in range(rank - normed, rank)}
    return Aligned(op, network, labels, full)


@relation_for(aten("group_norm"))
def group_norm(op: Op, network: Network) -> Relation | None:
    return _by_channel(op, network, 1, "the statistics of a group norm are taken over all of it")


@relation_for(aten("instance_norm"))
def instance_norm(op: Op, network: Network) -> Relation | None:
    """Normalize each channel alone: channels may be removed, positions may not."""
    why = "the statistics of an instance norm are taken over all of it"
    return _by_channel(op, network, 2, why)


@relation_for(aten("batch_norm"))
def batch_norm(op: Op, network: Network) -> Relation | None:
    """Handle a batch norm that uses statistics of the batch, so that it cannot be folded."""
    why = "a batch norm without stored statistics reads all positions"
    return _by_channel(op, network, 2, why)


def _by_channel(op: Op, network: Network, whole: int, why: str) -> Relation:
    """Tie numbers per channel to the channels; axes from ``whole`` on keep all places."""
    call = Barrier(op, network).call
    x = call["input"].name
    own = [str(a) for a in range(len(network.values[x].shape))]
    labels: dict[str, list[str | None]] = {x: list(own), op.name: list(own)}
    for name in ("weight", "bias", "running_mean", "running_var"):
        if isinstance(call.arguments.get(name), Ref):
            labels[call[name].name] = ["1"]
    return Aligned(op, network, labels, {label: why for label in own[whole:]})


@relation_for(aten("softmax log_softmax _softmax _log_softmax _safe_softmax"))
def softmax(op: Op, network: Network) -> Relation | None:
    call = Barrier(op, network).call
    x = next(iter(op.refs()))
    rank = len(network.values[x].shape)
    own = [str(a) for a in range(rank)]
    full = {own[call["dim"] % rank]: "a softmax is taken over all of it"}
    return Aligned(op, network, {x: list(own), op.name: list(own)}, full)


# Sums and means over axes.


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
