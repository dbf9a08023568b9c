"""The paper's Algorithm 1: keep whole chains of connections, from the input to the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from ..errors import TrellisError
from ..trace.trellis import Trellis
from .choices import Choices
from .layers import layered
from .singles import add_singles, split, wires_taken
from .surrogate import ahead
from .walk import Walk


def chains(
    net: Trellis,
    saliency: Mapping[str, Tensor],
    budget: int,
    *,
    surrogate: Literal["local", "global"] = "local",
    inverse_alpha: float = 1.0,
    row_normalize: bool = False,
    stochastic: bool = False,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Masks of ``budget`` connections, by chains from a seeded rotation over the input units.

    At a unit i the chain takes the untaken connection to the unit j of largest |W_ij| (local) or
    |W_ij| · max_k Ŵ_jk (global, see `surrogate.ahead`); with ``stochastic`` it draws one in
    proportion to |W_ij| or |W_ij| · Σ_k Ŵ_jk, without replacement. |W| is ``saliency``: at least
    0, in the parameters' shapes. Parameters that it leaves out are wires: always kept, never
    counted, of weight 1.

    The chain that would overshoot the budget is not begun; single connections between live
    units, largest saliency first, fill the rest. Fewer than ``budget`` are kept only where no
    single one can be added. Layered networks only.

    >>> from ..trace.trellis import trace
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    >>> saliency = {"0.weight": torch.tensor([[1., 4.], [3., 2.]]), "1.weight": torch.ones(1, 2)}
    >>> masks = chains(trace(mlp, torch.zeros(1, 2)), saliency, 4)
    >>> masks["0.weight"].int().tolist(), masks["1.weight"].int().tolist()
    ([[0, 1], [1, 0]], [[1, 1]])
    """
    if surrogate not in ("local", "global"):
        raise TrellisError(f'surrogate={surrogate!r}: give "local" or "global"')
    if not inverse_alpha >= 1:
        raise TrellisError(f"inverse_alpha={inverse_alpha!r}: give a number from 1 up to math.inf")
    found = layered(net)
    magnitudes = found.flat(saliency, missing=1.0)
    scores = None
    if surrogate == "global":
        scores = ahead(
            found, magnitudes, inverse_alpha, total=stochastic, row_normalize=row_normalize
        )
    choices = Choices(found, magnitudes, ahead=scores, seed=seed if stochastic else None)
    taken = wires_taken(found, saliency)
    room = Walk(choices, taken).rounds(rotation(found.units[0], seed), budget)
    add_singles(net, found, taken, magnitudes, room)
    return split(found, taken, saliency)


def rotation(units: int, seed: int) -> list[int]:
    """The order in which input units take turns."""
    generator = torch.Generator().manual_seed(seed & 0xFFFFFFFF)
    order: list[int] = torch.randperm(units, generator=generator).tolist()
    return order
