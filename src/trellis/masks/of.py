"""Reading the masks that a model carries."""

from __future__ import annotations

import torch
from torch import nn

from trellis.errors import TrellisError
from trellis.masks.masks import Masks
from trellis.masks.slots import named_slots, tied


def masks_of(model: nn.Module) -> Masks:
    """The masks on a model's parameters: ours, or those of `torch.nn.utils.prune`.

    A tied parameter stands here once, unless its aliases are masked differently.

    >>> from torch.nn.utils import prune
    >>> model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 1))
    >>> _ = prune.l1_unstructured(model[0], "weight", amount=6)
    >>> masks_of(model)
    Masks: 2 of 8 connections kept (75 % pruned) in 1 tensor
    """
    found = {}
    for group in tied(named_slots(model), masked=True):
        name, slot = group[0]
        if slot.mask is not None:
            found[name] = slot.mask.to(torch.bool, copy=True)
    if not found:
        raise TrellisError(
            "the model carries no masks, neither ours nor torch.nn.utils.prune's: prune it first, "
            "or load masks with Masks.load(path) and apply them"
        )
    return Masks(found)


def carried_masks(model: nn.Module) -> Masks | None:
    """The masks on a model's parameters, if it carries any."""
    masked = any(slot.mask is not None for _, slot in named_slots(model))
    return masks_of(model) if masked else None
