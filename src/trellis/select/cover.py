"""Reaching every output: the paths that are reserved before the rest is chosen."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..paths.machine import CPU, TAKES_ALL
from ..paths.witness import Witness
from ..trace.trellis import Trellis
from .ranking import Ranking

STEP = 2.0**-8  # what a new connection costs, as a factor, against one that is already kept


def misses(outputs: list[Tensor], wanted: list[Tensor]) -> bool:
    """Whether a wanted output unit is not among those reached; bool, per output signal."""
    return any(bool((w & ~o).any()) for o, w in zip(outputs, wanted, strict=True))


def relative(ranking: Ranking) -> dict[str, Tensor]:
    """Saliency of each tensor relative to its largest, in (0, 1]; zero where not allowed.

    Nothing allowed is zero: a connection of no saliency may still be needed.
    """
    found = {}
    for name, saliency in ranking.saliency.items():
        w = saliency.to(torch.float64)
        if w.numel():
            w = w - w.min().clamp(max=0.0)  # from zero up
            top = w.max()
            w = (w / top if top > 0 else torch.ones_like(w)).clamp(min=1e-4)
        found[name] = w if ranking.allowed is None else w * ranking.allowed[name]
    return found


def best_cover(net: Trellis, ranking: Ranking, wanted: list[Tensor]) -> dict[str, Tensor]:
    """The best path to each wanted output unit."""
    device = ranking.device if net.uses <= TAKES_ALL else CPU
    witness = Witness(net, relative(ranking), device)
    return _as(ranking, witness.to_outputs([w.to(device) for w in wanted]))


def thrifty(ranking: Ranking, kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights under which the best path is the one with the fewest new connections, ties going
    to saliency."""
    return {
        name: torch.where(
            kept[name].cpu(), (w.cpu() > 0).to(w.dtype), STEP * (1 + w.cpu()) / 2 * (w.cpu() > 0)
        )
        for name, w in relative(ranking).items()
    }


def thrifty_cover(net: Trellis, ranking: Ranking, wanted: list[Tensor]) -> dict[str, Tensor]:
    """A path to one output, then to all others with as few new connections each as possible."""
    kept = one_path(net, ranking)
    witness = Witness(net, thrifty(ranking, kept))
    rest = witness.to_outputs([w.cpu() for w in wanted])
    rest = _as(ranking, rest)
    return {name: kept[name] | rest[name] for name in kept}


def one_path(net: Trellis, ranking: Ranking) -> dict[str, Tensor]:
    """The path of fewest connections from an input to an output."""
    none = {name: torch.zeros(shape, dtype=torch.bool) for name, shape in ranking.shapes.items()}
    witness = Witness(net, thrifty(ranking, none))
    values = witness.outputs()
    flat = torch.cat([v.detach().reshape(-1) for v in values])
    place = int(flat.argmax())
    wanted = []
    for value in values:
        mask = torch.zeros(value.numel(), dtype=torch.bool)
        if 0 <= place < value.numel():
            mask[place] = True
        place -= value.numel()
        wanted.append(mask.reshape(value.shape))
    return _as(ranking, witness.to_outputs(wanted))


def _as(ranking: Ranking, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: mask.to(ranking.device) for name, mask in masks.items()}
