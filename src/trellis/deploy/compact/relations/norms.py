"""Normalization: every place that enters a statistic must stay."""

from __future__ import annotations

from ....graph.registry import aten
from ..program import Op, Ref
from ..reading import Network
from .aligned import Aligned
from .relation import Barrier, Relation, relation_for


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
