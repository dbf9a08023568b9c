"""What stays though nothing lives in it, in words."""

from __future__ import annotations

import math

from .kept import Kept
from .reading import Network
from .relations import Barrier, Recurrent, Relation
from .report import Stay


def left_alone(network: Network, kept: Kept, relations: dict[str, Relation]) -> list[str]:
    """Layers out of whose weights not all is taken that could be, with the operation that is in
    the way."""
    found: dict[str, None] = {}
    for op in network.ops:
        relation = relations.get(op.name)
        weights = [n for n in op.refs() if n in network.values and network.values[n].weight]
        holds = any(network.parameters.get(name) in network.kept for name in weights)
        name, place = op.target.split(".")[-2], network.places.get(op.name) or op.name
        if isinstance(relation, Barrier) and holds:
            found[f"{place}: left as it is, compaction does not reach into `{name}`"] = None
        elif isinstance(relation, Recurrent) and (dead := relation.dead(kept)):
            found[f"{place}: {dead:,} dead connections between units that stay are left"] = None
    return list(found)


def stays(network: Network, kept: Kept, relations: dict[str, Relation]) -> list[Stay]:
    """Units of layers that stay though nothing lives in them, counted by reason."""
    found: dict[tuple[str, str], int] = {}
    for name, relation in relations.items():
        value = network.values.get(name)
        if value is None or value.constant or not relation.weights() or value.live is None:
            continue
        sizes = kept.size(name)
        for axis in range(len(value.shape)):
            code = kept.code(name, axis)
            others = math.prod(n for a, n in enumerate(sizes) if a != axis)
            for reason in sorted(set(code[code > 1].tolist())):
                key = (network.places.get(name) or name, kept.reasons[reason])
                found[key] = found.get(key, 0) + int((code == reason).sum()) * others
    return [Stay(layer, units, why) for (layer, why), units in found.items()]
