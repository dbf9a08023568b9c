"""Which connections are kept: one boolean tensor for each pruned parameter."""

from __future__ import annotations

import difflib
import json
import weakref
from collections.abc import Iterator, Mapping
from functools import cached_property
from os import PathLike
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..devices import on_cpu
from ..errors import TrellisError
from . import attach
from .file import read_masks, weights_hash, write_masks
from .plain import plain
from .slots import Slot, named_slots, refuse_inference, tied

Model = TypeVar("Model", bound=nn.Module)
Named = list[tuple[str, Slot]]


class Masks(Mapping[str, Tensor]):
    """The kept connections of a model: ``{parameter name: bool tensor}``, True is kept.

    Names are plain names; a tied parameter stands here once and is masked under each of its
    names. ``budget`` is the number of connections asked for, ``kept`` the number found (they
    differ where no consistent network of exactly the budget was found). ``provenance`` is
    whatever JSON can hold about how the masks were made.

    >>> layer = nn.Linear(3, 1, bias=False)
    >>> _ = nn.init.constant_(layer.weight, 2.0)
    >>> masks = Masks({"weight": torch.tensor([[True, False, True]])})
    >>> masks
    Masks: 2 of 3 connections kept (33.33 % pruned) in 1 tensor
    >>> masks.apply(layer).weight.tolist()
    [[2.0, 0.0, 2.0]]
    >>> list(masks.plain_state_dict(layer))
    ['weight']
    """

    def __init__(
        self,
        masks: Mapping[str, Tensor],
        *,
        budget: int | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        for name, mask in masks.items():
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                given = f"dtype {mask.dtype}" if isinstance(mask, Tensor) else type(mask).__name__
                raise TrellisError(
                    f"mask {name!r} has {given}: give a bool tensor, True where a connection is "
                    "kept (for example `weight != 0`)"
                )
        if budget is not None and (not isinstance(budget, int) or budget < 0):
            raise TrellisError(
                f"budget={budget!r}: give the number of connections asked for, 0 or more"
            )
        self._masks = {name: mask.detach().contiguous() for name, mask in masks.items()}
        self._budget = budget
        self.provenance: dict[str, Any] = _jsonable(provenance or {})
        self._model: weakref.ref[nn.Module] | None = None

    def __getitem__(self, name: str) -> Tensor:
        return self._masks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._masks)

    def __len__(self) -> int:
        return len(self._masks)

    def __eq__(self, other: object) -> bool:
        """Whether both keep the same connections of the same parameters."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return self.keys() == other.keys() and all(
            torch.equal(mask.cpu(), other[name].cpu()) for name, mask in self.items()
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def kept(self) -> int:
        """How many connections are kept."""
        return sum(int(mask.count_nonzero()) for mask in self.values())

    @property
    def budget(self) -> int:
        """How many connections were to be kept."""
        return self.kept if self._budget is None else self._budget

    @property
    def total(self) -> int:
        """How many connections the masked parameters have."""
        return sum(mask.numel() for mask in self.values())

    @property
    def sparsity(self) -> float:
        """The fraction of the connections that is removed."""
        return 1 - self.kept / self.total if self.total else 0.0

    @on_cpu()
    def apply(self, model: Model) -> Model:
        """Mask the model in place, and return it.

        A parameter that already has masks, ours or torch's, gets these in their place, over the
        weights as they are stored; parameters without a mask here are left alone. Nothing is
        changed if a name or shape does not fit.
        """
        self._model = weakref.ref(model)
        matched = self._matched(model)
        for group, _ in matched:
            for name, slot in group:
                attach.refuse_shadowed(name, slot)
        for group, masks in matched:
            if len(masks) == 1:
                attach.attach([slot for _, slot in group], next(iter(masks.values())))
                continue
            # Aliases of one parameter under masks of their own, as torch's pruning may leave them.
            first = next(iter(masks.values()))
            for name, slot in group:
                attach.attach([slot], masks.get(name, first))
        return model

    @on_cpu()
    def bake(self, model: Model) -> Model:
        """Write the masks into the weights, in place, and return the model, plain again.

        Each masked parameter ends as an ordinary one with +0.0 where nothing is kept. A
        parametrization of your own under the mask (weight norm, say) is evaluated and removed
        too: what it would compute next could not stay zero. Masks of other parameters stay.
        """
        matched = self._matched(model)
        users: dict[int, set[int]] = {}
        for index, group in enumerate(tied(named_slots(model), masked=False)):
            for source in group[0][1].sources:
                users.setdefault(id(source), set()).add(index)
        for group, masks in matched:
            slots = [slot for _, slot in group]
            if len(masks) > 1:
                raise TrellisError(
                    f"{', '.join(map(repr, masks))} are one tied parameter under different masks, "
                    "so no plain weight can hold them all: untie them first, or give one mask"
                )
            alone = all(len(users[id(source)]) == 1 for source in slots[0].sources)
            attach.bake(slots, next(iter(masks.values())), alone=alone)
        return model

    def plain_state_dict(self, model: nn.Module) -> dict[str, Tensor]:
        """The model's state under the keys of the unpruned model, with these masks in force.

        Loads with ``strict=True`` into a fresh model; a parametrization of your own on a masked
        weight (weight norm, say) is evaluated, so it must not be on that model. The model itself
        is not changed and need not be masked. As with ``model.state_dict()``, tensors without a
        mask share its memory.
        """
        masked: dict[str, Tensor] = {}
        with plain(model) as seen, torch.no_grad():
            state = dict(seen.state_dict())
        for group, masks in self._matched(model):
            bare = group[0][1].bare()
            values = {
                name: torch.where(mask.to(bare.device), bare, 0) for name, mask in masks.items()
            }
            first = next(iter(values.values()))
            masked |= {name: values.get(name, first) for name, _ in group}
        return {name: masked.get(name, tensor) for name, tensor in state.items()}

    def save(self, path: str | PathLike[str], model: nn.Module | None = None) -> None:
        """Write a masks file, all at once or not at all.

        The file also holds, under ``provenance["weights"]``, a hash of the weights as they are
        now of ``model``; without one, of the model that the masks were last applied to, if it
        is still there.
        """
        provenance = dict(self.provenance)
        if model is None and self._model is not None:
            model = self._model()
        if model is not None:
            provenance["weights"] = weights_hash(model)
        write_masks(path, self, budget=self.budget, provenance=provenance)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Masks:
        """Read a masks file, checking everything in it."""
        masks, budget, provenance = read_masks(path)
        return cls(masks, budget=budget, provenance=provenance)

    def __repr__(self) -> str:
        tensors = "1 tensor" if len(self) == 1 else f"{len(self)} tensors"
        asked = "" if self.kept == self.budget else f", budget {self.budget:,}"
        return (
            f"Masks: {self.kept:,} of {self.total:,} connections kept "
            f"({100 * self.sparsity:.4g} % pruned{asked}) in {tensors}"
        )

    def _matched(self, model: nn.Module) -> list[tuple[Named, dict[str, Tensor]]]:
        """Each parameter to mask: its slots by name, and the different masks, by name, for it."""
        refuse_inference(model)
        groups = tied(named_slots(model), masked=False)
        names = {name: slot for group in groups for name, slot in group}
        for name, mask in self.items():
            if name not in names:
                raise TrellisError(f"the model has no parameter {name!r}{_hint(name, names)}")
            slot = names[name]
            shape = slot.bare().shape if slot.transforms else slot.sources[0].shape
            if mask.shape != shape:
                raise TrellisError(
                    f"mask {name!r} has shape {tuple(mask.shape)} and the parameter "
                    f"{tuple(shape)}: these masks were made for another model"
                )
        matched = []
        for group in groups:
            masks = {name: self[name] for name, _ in group if name in self}
            if masks:
                first = next(iter(masks.values()))
                if all(mask is first or torch.equal(mask, first) for mask in masks.values()):
                    masks = dict([next(iter(masks.items()))])
                matched.append((group, masks))
        return matched


def _hint(name: str, names: Mapping[str, Slot]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f": did you mean {close[0]!r}?" if close else f"; it has {', '.join(names) or 'none'}"


def _jsonable(provenance: Mapping[str, Any]) -> dict[str, Any]:
    try:
        # There and back: what is loaded from a file then equals what was saved.
        result: dict[str, Any] = json.loads(json.dumps(dict(provenance), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TrellisError(
            f"provenance {provenance!r} cannot be written as JSON: {error}"
        ) from None
    return result


# Reading the masks that a model carries.


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
