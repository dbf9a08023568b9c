"""What a traced model holds at this moment: its weights, and which of them are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
import torch
from torch import Tensor

from ..errors import TrellisError
from ..masks.plain import undisturbed
from ..masks.slots import named_slots, tied
from .steps import Contract, Fixed, Step, Weight
from .trellis import Trellis, names_in


@dataclass(frozen=True, eq=False)
class Current:
    """Effective ``weights`` of every parameter that holds connections, and the ``masks`` of those
    that carry one. Both by plain name, and contiguous, however the model lies in memory."""

    weights: dict[str, Tensor]
    masks: dict[str, Tensor]

    def kept(self) -> dict[str, Tensor]:
        """Where the mask says 1 or, without a mask, the weight is not 0."""
        return {
            name: _nonzero(weight) if (mask := self.masks.get(name)) is None else mask
            for name, weight in self.weights.items()
        }


def _nonzero(weight: Tensor) -> Tensor:
    """Where a tensor is not 0; on the CPU numpy compares several times faster than torch."""
    if weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.asarray(weight.numpy() != 0))
    return weight != 0


def current(net: Trellis) -> Current:
    """Read the model that was traced."""
    return undisturbed(net.model, lambda: _current(net))


def _current(net: Trellis) -> Current:
    weights: dict[str, Tensor] = {}
    masks: dict[str, Tensor] = {}
    for group in tied(named_slots(net.model), masked=True):
        for name, slot in group:
            if name not in net.connections:
                continue
            value = slot.value()
            if tuple(value.shape) != net.connections[name]:
                raise TrellisError(
                    f"{name!r} had shape {net.connections[name]} when it was traced and has "
                    f"{tuple(value.shape)} now: trace the model again"
                )
            weights[name] = value.contiguous()
            if slot.mask is not None:
                masks[name] = slot.mask.bool().contiguous()
                if slot.overruled:  # what the model computes with is kept, whatever a mask says
                    masks[name] = masks[name] | (weights[name] != 0)
            break
    gone = [name for name in net.connections if name not in weights]
    if gone:
        raise TrellisError(f"{gone[0]!r} is no longer in the model: trace it again")
    devices = {w.device for w in weights.values()}
    if len(devices) > 1:
        raise TrellisError(
            f"the model lies on several devices ({', '.join(sorted(map(str, devices)))}); "
            "move it to one"
        )
    return Current({n: weights[n] for n in net.connections}, masks)


def matching(net: Trellis, patterns: str | tuple[str, ...] | list[str]) -> list[str]:
    """Parameters one of whose names fits one of the patterns (shell style: ``head.*``); a tied
    one has several.

    Every pattern must fit something: one that does not is a typing error.
    """
    patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    if not patterns:
        return []
    slots = list(named_slots(net.model))
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name, _ in slots):
            raise TrellisError(
                f"ignore pattern {pattern!r} fits no parameter; there are "
                f"{', '.join(map(repr, list(net.connections)[:8]))}"
                f"{' …' if len(net.connections) > 8 else ''}"
            )
    fits = {
        name: any(fnmatchcase(alias, pattern) for alias, _ in group for pattern in patterns)
        for group in tied(slots, masked=False)
        for name, _ in group
    }
    return [name for name in net.connections if fits[name]]


def without(net: Trellis, names: list[str], weights: dict[str, Tensor]) -> Trellis:
    """The same trellis in which these parameters are wires: constants, not connections."""
    if not names:
        return net
    gone = set(names)
    steps: list[Step] = []
    for step in net.steps:
        if isinstance(step, Contract):
            used = set(names_in(step.weight))
            if used & gone and not used <= gone:
                raise TrellisError(
                    f"{', '.join(sorted(used))} are used as one matrix: ignore all of them or none"
                )
            if used <= gone:
                step = Fixed(step.out, step.x, _constant(step.weight, weights))
        steps.append(step)
    left = {n: shape for n, shape in net.connections.items() if n not in gone}
    scoring = None if net.scoring is None else without(net.scoring, names, weights)
    return replace(net, steps=steps, connections=left, scoring=scoring, cache={})


def _constant(weight: Weight, weights: dict[str, Tensor]) -> Tensor:
    sizes = {n: weights[n].numel() for n in names_in(weight)}
    flat = torch.zeros(max(weight.offsets[n] + sizes[n] for n in sizes))
    for name in sizes:
        start = weight.offsets[name]
        flat[start : start + sizes[name]] = weights[name].detach().cpu().float().abs().reshape(-1)
    positions = weight.positions()
    return torch.where(positions >= 0, flat[positions.clamp(min=0)], torch.zeros(()))
