"""Which connections may be kept at all."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from ..errors import TrellisError
from ..trace.current import Current
from ..trace.trellis import Trellis

STRAY = 1e-3  # share of zeros up to which they are chance: random initialisation draws some
SAMPLE = 1 << 13  # of more zeros than stray ones it misses all once in four thousand tensors


def allowed(net: Trellis, now: Current, *, closed: bool) -> dict[str, Tensor] | None:
    """What is kept now: what masks keep and, for a consistent result (``closed``), what is not
    zero in a parameter that was pruned without masks, since a path through a zero weight is
    none. None where that is everything.

    A parameter that is zero throughout has not been pruned but not been trained yet (the second
    factor of a low-rank adapter, a head initialised to zero): all of it may be kept.
    """
    found: dict[str, Tensor] = {}
    for name in net.connections:
        weight = now.weights[name]
        if name in now.masks:
            found[name] = now.masks[name]
        elif closed and STRAY < zeros(weight) < 1:
            found[name] = weight != 0
    if not found:
        return None
    return {
        name: found[name]
        if name in found
        else torch.ones(shape, dtype=torch.bool, device=now.weights[name].device)
        for name, shape in net.connections.items()
    }


def zeros(weight: Tensor) -> float:
    """The share of entries that are exactly zero; of a large tensor, 0.0 if a sample has none."""
    flat = weight.reshape(-1)
    if flat.numel() > SAMPLE and not bool((flat[:: flat.numel() // SAMPLE | 1] == 0).any()):
        return 0.0
    return 1 - int(torch.count_nonzero(flat)) / flat.numel()


def refuse_hooks(model: nn.Module) -> None:
    """Old-style norms recompute a weight from another before each call: what is masked there
    comes back, or is divided by zero."""
    for name, module in model.named_modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm | SpectralNorm):
                kind = "weight_norm" if isinstance(hook, WeightNorm) else "spectral_norm"
                raise TrellisError(
                    f"{name or type(module).__name__!r} has torch.nn.utils.{kind}, whose weight "
                    "cannot be masked; use "
                    f"torch.nn.utils.parametrizations.{kind} instead, or remove_{kind} first"
                )
