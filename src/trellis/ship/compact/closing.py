"""Running the relations until nothing changes: the least that can stay."""

from __future__ import annotations

from collections.abc import Mapping

from ...trace.values import leaves
from .kept import Kept
from .program import Ref
from .reading import Network
from .relations import Relation


def closed(network: Network, relations: Mapping[str, Relation], whole: str | None) -> Kept:
    """What stays of every axis of every value. ``whole``: a reason for everything to."""
    kept = Kept(network)
    for name in network.inputs:
        if name in network.values:
            for axis in range(len(network.values[name].shape)):
                kept.fill(name, axis, "the model takes it")
    for leaf in leaves(network.result):
        if isinstance(leaf, Ref) and leaf.name in network.values:
            for axis in range(len(network.values[leaf.name].shape)):
                kept.fill(leaf.name, axis, "the model returns it")
    if whole is not None:
        for name, value in network.values.items():
            for axis in range(len(value.shape)):
                kept.fill(name, axis, whole)
        return kept
    for name, value in network.values.items():
        for axis in value.open:
            kept.fill(name, axis, "it is one with the batch")
    tied = _tied(network)
    while True:
        _close(kept, relations, tied)
        kept.changed.clear()
        kept.complete()
        if kept.changed:
            continue
        for relation in relations.values():
            relation.settle(kept)
        if not kept.changed:
            return kept


def _tied(network: Network) -> list[list[str]]:
    """Values that are one parameter under several names."""
    groups: dict[str, list[str]] = {}
    for value, parameter in network.parameters.items():
        groups.setdefault(parameter, []).append(value)
    return [group for group in groups.values() if len(group) > 1]


def _close(kept: Kept, relations: Mapping[str, Relation], tied: list[list[str]]) -> None:
    readers: dict[str, list[Relation]] = {}
    for relation in relations.values():
        for name in relation.touched():
            readers.setdefault(name, []).append(relation)
    waiting = list(relations.values())
    while waiting:
        kept.changed.clear()
        for relation in waiting:
            relation.close(kept)
        for group in tied:
            for axis in range(len(kept.codes[group[0]])):
                kept.tie([(name, axis) for name in group], "its weight is tied to another")
        again = {id(r): r for name in kept.changed for r in readers.get(name, ())}
        waiting = list(again.values())
