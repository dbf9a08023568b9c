"""Merge the adapters of peft into a pruned model, and keep its zeros."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..errors import TrellisError
from ..masks import Mask, Masks
from ..masks.masks import carried_masks
from ..masks.slots import named_slots

__all__ = ["merge"]


def merge(model: nn.Module, **options: Any) -> nn.Module:
    """Merge the adapters into the weights, and remove them; pruned weights stay 0.

    Peft's own ``merge_and_unload()`` writes into the weights that a layer computes with. Under a
    mask those are a copy, and what is merged is lost. This function takes the masks off, merges,
    and masks the result.

    An adapter also acts where weights are pruned. That part is lost, so the merged model computes
    something else than the model with its adapter. Measure it, and fine-tune it if needed.

    Args:
        model: A model with adapters (``peft.PeftModel``), masked or not. It is used up.
        **options: Options of ``merge_and_unload()``, such as ``safe_merge=True``.

    Returns:
        The model without adapters, with the masks on its weights.

    Raises:
        TrellisError: The model has no adapters that could be merged.
    """
    merging = getattr(model, "merge_and_unload", None)
    if not callable(merging):
        raise TrellisError(
            f"expected a peft.PeftModel with adapters to merge, got {type(model).__name__}"
        )
    masks = carried_masks(model)
    if masks is None:
        plain: nn.Module = merging(**options)
        return plain
    # The merged model holds the same layers under other names.
    places: dict[tuple[int, str], Tensor] = {}
    for _, slot in named_slots(model):
        mask = next((t.now() for t in slot.transforms if isinstance(t, Mask)), slot.mask)
        if mask is not None:
            places[id(slot.module), slot.leaf] = mask.bool().clone()
    masks.bake(model)
    merged: nn.Module = merging(**options)
    found = {
        name: places[id(slot.module), slot.leaf]
        for name, slot in named_slots(merged)
        if (id(slot.module), slot.leaf) in places
    }
    return Masks(found, provenance=masks.provenance).apply(merged)
