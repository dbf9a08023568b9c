"""Read the current weights and masks of a traced model."""

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
    """Hold the effective ``weights`` of all parameters with connections, and their ``masks``.

    Both are keyed by plain name. All tensors are contiguous, whatever the model's memory layout.
    """

    weights: dict[str, Tensor]
    masks: dict[str, Tensor]

    def kept(self) -> dict[str, Tensor]:
        """Return True where the mask is 1 or, without a mask, where the weight is not 0."""
        return {
            name: _nonzero(weight) if (mask := self.masks.get(name)) is None else mask
            for name, weight in self.weights.items()
        }


def _nonzero(weight: Tensor) -> Tensor:
    """Return where a tensor is not 0; on the CPU numpy is several times faster than torch."""
    if weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.asarray(weight.numpy() != 0))
    return weight != 0


def current(net: Trellis) -> Current:
    """Read the weights and masks of the traced model."""
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
                    f"{name!r}: expected the shape {net.connections[name]} of the trace, got "
                    f"{tuple(value.shape)}; trace the model again"
                )
            weights[name] = value.contiguous()
            if slot.mask is not None:
                masks[name] = slot.mask.bool().contiguous()
                if slot.overruled:  # a later parametrization may undo the mask
                    masks[name] = masks[name] | (weights[name] != 0)
            break
    gone = [name for name in net.connections if name not in weights]
    if gone:
        raise TrellisError(f"{gone[0]!r} is no longer in the model; trace the model again")
    devices = {w.device for w in weights.values()}
    if len(devices) > 1:
        raise TrellisError(
            f"expected a model on one device, got {', '.join(sorted(map(str, devices)))}; "
            "move it to one device"
        )
    return Current({n: weights[n] for n in net.connections}, masks)


def matching(net: Trellis, patterns: str | tuple[str, ...] | list[str]) -> list[str]:
    """Return the parameters with a name that matches a pattern (shell style, ``head.*``).

    A tied parameter has several names. A pattern that matches no parameter is an error, since it
    is probably misspelt.
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
    """Return the same trellis with these parameters as constants instead of connections."""
    if not names:
        return net
    gone = set(names)
    steps: list[Step] = []
    for step in net.steps:
        if isinstance(step, Contract):
            used = set(names_in(step.weight))
            if used & gone and not used <= gone:
                raise TrellisError(
                    f"{', '.join(sorted(used))} are used as one matrix; ignore all of them or none"
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
