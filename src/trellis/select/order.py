"""All of a ranking at once: connections from best to worst, sorted in a few steps on a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .ranking import Ranking


def order(ranking: Ranking, among: Mapping[str, Tensor]) -> Tensor:
    """Flat places, over all parameters one after another, of what is marked in ``among``: by
    score, then saliency, then place."""
    places = torch.nonzero(_flat(ranking, among))[:, 0]
    for values in (ranking.saliency, ranking.scores):  # the last sort counts most
        worth = _flat(ranking, values)[places] + 0.0  # so that -0.0 is 0.0
        places = places[torch.sort(worth, descending=True, stable=True).indices]
    return places


def masks_at(ranking: Ranking, places: Tensor) -> dict[str, Tensor]:
    """Masks that keep what lies at these flat places."""
    flat = torch.zeros(ranking.total, dtype=torch.bool, device=places.device)
    flat[places] = True
    parts = flat.split([math.prod(shape) for shape in ranking.shapes.values()])
    return {
        name: part.view(shape)
        for (name, shape), part in zip(ranking.shapes.items(), parts, strict=True)
    }


def _flat(ranking: Ranking, tensors: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([tensors[name].reshape(-1) for name in ranking.shapes])
