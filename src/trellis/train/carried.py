"""The masks that a model carries while it is trained: found, and renewed in place.

The mask is a buffer of a parametrization. Writing into it keeps everything else as it was:
parameters and their optimizer, compiled code, the buffers that data-parallel training knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..errors import TrellisError
from ..masks import Mask, Masks
from ..masks.slots import Slot, named_slots, tied
from .regrowth import ProbedMask


@dataclass(frozen=True, eq=False)
class Carried:
    """The mask on one parameter, by its plain name, and where the parameter is stored."""

    name: str
    mask: Mask
    slot: Slot

    @property
    def stored(self) -> Tensor | None:
        """The stored tensor, entry for entry the masked one; None where it is computed from
        others (weight norm, say)."""
        bare = all(isinstance(transform, Mask) for transform in self.slot.transforms)
        return self.slot.sources[0] if bare else None

    @torch.no_grad()
    def renew(self, kept: Tensor) -> None:
        """Write a new mask. What goes and what comes back is stored as zero."""
        stored = self.stored
        if stored is not None:
            stored.masked_fill_(~(kept & self.mask.mask), 0)
        self.mask.mask.copy_(kept)


def attach(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Put masks on a model."""
    bare: dict[str, Tensor] = {}
    for group in tied(named_slots(model), masked=True):
        name, slot = group[0]
        if name in masks:
            mine = [t for t in slot.transforms if isinstance(t, Mask)]
            if mine:
                mine[0].mask.copy_(masks[name])
            else:
                bare[name] = masks[name]
    Masks(bare).apply(model)


def probed(model: nn.Module, names: Collection[str]) -> None:
    """Make the masks on these parameters such as can tell the gradients of what is pruned."""
    made: dict[int, ProbedMask] = {}  # aliases of a tied parameter share one mask
    for name, slot in named_slots(model):
        for place, mask in enumerate(slot.transforms):
            if not isinstance(mask, Mask) or isinstance(mask, ProbedMask):
                continue
            if name in names or id(mask) in made:
                _chain(slot)[place] = made.setdefault(id(mask), ProbedMask(mask.mask))


def _chain(slot: Slot) -> parametrize.ParametrizationList:
    chains = slot.module.parametrizations
    assert isinstance(chains, nn.ModuleDict)
    chain = chains[slot.leaf]
    assert isinstance(chain, parametrize.ParametrizationList)
    return chain


def storable(model: nn.Module, names: Iterable[str]) -> None:
    """Refuse parameters that are computed from others: no entry of theirs can be set to zero."""
    slots = dict(named_slots(model))
    for name in names:
        other = [t for t in slots[name].transforms if not isinstance(t, Mask)]
        if other:
            raise TrellisError(
                f"connections that come back start from zero, and {name!r} is computed by "
                f"{type(other[0]).__name__}, which cannot be set: leave out regrow, or "
                f"ignore={name!r}"
            )


def refuse_sparse(model: nn.Module, names: Collection[str]) -> None:
    """Refuse parameters whose gradients are sparse tensors: no mask can pass those on."""
    for name, module in model.named_modules():
        sparse = isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
        weight = f"{name}.weight" if name else "weight"
        if sparse and weight in names:
            raise TrellisError(
                f"{weight!r} gets sparse gradients, which a mask cannot pass on: make its layer "
                f"with sparse=False, or ignore={weight!r}"
            )


def refuse_sharded(model: nn.Module) -> None:
    """Refuse parameters of which every process holds a part: paths are found in whole networks."""
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "full_tensor"):  # a DTensor, without waiting for its import
            raise TrellisError(
                f"{name!r} is shared out over processes ({type(parameter).__name__}, as "
                "fully_shard leaves it), and paths are found in whole networks: train in "
                "DistributedDataParallel, or prune before it is shared out"
            )


def carried(model: nn.Module, names: Iterable[str]) -> list[Carried]:
    """The masks on these parameters."""
    slots = dict(named_slots(model))
    found = []
    for name in names:
        if name not in slots:
            raise TrellisError(f"{name!r} is no longer in the model: make a new Pruner for it")
        slot = slots[name]
        mask = next((t for t in slot.transforms if isinstance(t, Mask)), None)
        if mask is None:
            raise TrellisError(
                f"the mask of {name!r} is gone (baked in, or removed), so it cannot be renewed: "
                "make a new Pruner for the model as it is"
            )
        if slot.overruled and (slot.value()[~mask.mask] != 0).any():
            raise TrellisError(
                f"{type(slot.transforms[-1]).__name__} was registered on {name!r} after its mask, "
                "and brings back what is pruned: register it before the Pruner is made"
            )
        found.append(Carried(name, mask, slot))
    return found
