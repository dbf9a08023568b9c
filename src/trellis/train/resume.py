"""Where a pruner stood, read back and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import TrellisError
from ..files import digest
from ..select.ranking import count
from .differing import differing

VERSION = 1


@dataclass(frozen=True, eq=False)
class Standing:
    """A pruner after ``steps`` steps, its last ``budget``, what it keeps, and the network of the
    last budget that it knows ``inside`` (empty where it needs none)."""

    steps: int
    budget: int
    masks: dict[str, Tensor]
    inside: dict[str, Tensor]

    def to_dict(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        state = {
            "version": VERSION,
            "plan": dict(plan),
            "steps": self.steps,
            "budget": self.budget,
            "masks": {name: mask.cpu().clone() for name, mask in self.masks.items()},
            "inside": {name: mask.cpu().clone() for name, mask in self.inside.items()},
        }
        return state | {"digest": _digest(state)}


def read_standing(
    state: Mapping[str, Any],
    plan: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    inside: bool,
) -> Standing:
    """The standing in a state dict of a pruner with the same plan; any other is refused.
    ``inside``: whether such a pruner needs to know a network inside."""
    if not isinstance(state, Mapping) or "version" not in state:
        raise TrellisError("this is no state of a Pruner: give what its state_dict() returned")
    if state["version"] != VERSION:
        raise TrellisError(
            f"the pruner's state is of version {state['version']!r}; this release reads version "
            f"{VERSION}: use the release that wrote it"
        )
    _check_same(state.get("plan"), plan)
    for name in ("steps", "budget"):
        value = state.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise TrellisError(f"the pruner's state says {name}={value!r}: it is damaged")
    masks = _checked_masks("masks", state.get("masks"), shapes)
    known = _checked_masks("inside", state.get("inside"), shapes if inside else {})
    most, kept = min(state["budget"], plan["total"]), count(masks)
    if state["budget"] > plan["total"] or not 0 < kept <= most:
        raise TrellisError(
            f"the pruner's state says budget={state['budget']} and keeps {kept} of "
            f"{plan['total']}: it is damaged"
        )
    if "digest" in state and state["digest"] != _digest(state):  # older releases wrote none
        raise TrellisError(
            "the pruner's state is not what its state_dict() returned (digest): it is damaged"
        )
    return Standing(state["steps"], state["budget"], masks, known)


def _digest(state: Mapping[str, Any]) -> str:
    tensors = {
        f"{kind}.{name}": mask for kind in ("masks", "inside") for name, mask in state[kind].items()
    }
    return digest(tensors, [dict(state["plan"]), state["steps"], state["budget"]])


def _checked_masks(
    what: str, given: object, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    found = dict(given) if isinstance(given, Mapping) else {}
    if set(found) != set(shapes):
        odd = sorted(set(found) ^ set(shapes))
        raise TrellisError(
            f"the pruner's state has {what} for another model: {', '.join(map(repr, odd[:3]))} "
            "is only in one of them"
        )
    for name, mask in found.items():
        fits = isinstance(mask, Tensor) and tuple(mask.shape) == shapes[name]
        if not fits or mask.dtype != torch.bool:
            raise TrellisError(
                f"the pruner's state has {what}[{name!r}] that is no bool tensor of shape "
                f"{shapes[name]}: it belongs to another model, or is damaged"
            )
    return found


def _check_same(stored: object, wanted: Mapping[str, Any]) -> None:
    if differs := differing(stored if isinstance(stored, Mapping) else {}, wanted):
        raise TrellisError(
            f"the state is of a pruner with another plan: {differs}. Go on with the settings it "
            "was begun with"
        )
