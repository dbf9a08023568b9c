"""The last few connections: single ones between units that are already live."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ..paths.liveness import addable
from ..trace.trellis import Trellis
from .layers import Floats, Layered


def wires_taken(net: Layered, names: Mapping[str, Tensor]) -> bytearray:
    """Nothing taken, but for parameters that are not among ``names``: those are wires."""
    taken = bytearray(net.total)
    for name, start in net.starts.items():
        if name not in names:
            size = math.prod(net.shapes[name])
            taken[start : start + size] = b"\1" * size
    return taken


def split(net: Layered, taken: bytearray, names: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Taken connections as masks in the parameters' shapes."""
    flat = torch.frombuffer(taken, dtype=torch.uint8).bool()
    return {
        name: flat[start : start + math.prod(net.shapes[name])].reshape(net.shapes[name]).clone()
        for name, start in net.starts.items()
        if name in names
    }


def add_singles(
    trellis: Trellis, net: Layered, taken: bytearray, magnitudes: Floats, room: int
) -> int:
    """Take up to ``room`` more connections, each live with no other change, largest magnitude
    first (ties by order). How many are left to take.

    Each has its tail reached and its head leading to an output by what is taken before, so all
    of them may be added at once.
    """
    while room and any(taken):
        kept = split(net, taken, dict.fromkeys(net.starts, torch.empty(0)))
        free = addable(trellis, kept)
        flat = np.zeros(net.total, bool)
        for name, start in net.starts.items():
            mask = free[name].cpu().reshape(-1).numpy()
            flat[start : start + len(mask)] = mask
        flat &= np.frombuffer(taken, np.uint8) == 0
        found = np.flatnonzero(flat)
        if not len(found):
            break
        best = found[np.argsort(-magnitudes[found], kind="stable")][:room]
        for connection in best.tolist():
            taken[connection] = 1
        room -= len(best)
    return room
