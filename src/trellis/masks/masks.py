"""Masks: one boolean tensor for each pruned parameter, True where a connection is kept.

`Masks` is what users hold. The functions below it attach a mask to a tensor, detach it, or write
it into the weights.
"""

from __future__ import annotations

import difflib
import json
import weakref
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cached_property
from os import PathLike
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..devices import on_cpu
from ..errors import TrellisError
from .file import read_masks, weights_hash, write_masks
from .plain import plain
from .slots import (
    ORDER,
    Mask,
    Slot,
    is_sharded,
    named_slots,
    parametrized,
    refuse_inference,
    slots_of,
    tied,
)
from .state import keep_plain_states

Model = TypeVar("Model", bound=nn.Module)
Named = list[tuple[str, Slot]]


class Masks(Mapping[str, Tensor]):
    """Hold the kept connections of a model, ``{parameter name: bool tensor}``; True is kept.

    `trellis.prune` returns masks, `trellis.masks_of` reads them from a model, and `Masks.load`
    reads them from a file. Masks are a read-only mapping: ``masks["fc.weight"]``, ``len(masks)``,
    ``for name, mask in masks.items()``. Two masks are equal if they keep the same connections.

    Names are those of the unpruned model (``fc.weight``). A tied parameter is listed once, under
    its first name, and is masked under all of its names.

    Args:
        masks: A bool tensor for each parameter name, in the parameter's shape.
        budget: Number of connections that were to be kept (default: the number that is kept).
        provenance: How the masks were made, as values that JSON can hold.

    Attributes:
        kept: Number of kept connections.
        budget: Number of connections that were to be kept. ``kept`` is smaller if no consistent
            network with exactly the budget was found.
        total: Number of connections of the masked parameters.
        sparsity: Fraction of the connections that is removed, ``1 - kept / total``.
        provenance: How the masks were made: the options of `trellis.prune` and the types and
            shapes of its inputs.

    Raises:
        TrellisError: A mask is not a bool tensor, or ``budget`` or ``provenance`` is invalid.

    Example:
        >>> import trellis
        >>> layer = nn.Linear(3, 1, bias=False)
        >>> _ = nn.init.constant_(layer.weight, 2.0)
        >>> masks = trellis.Masks({"weight": torch.tensor([[True, False, True]])})
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
                    f"mask {name!r}: expected a bool tensor, got {given}; give one that is True "
                    "where a connection is kept, such as weight != 0"
                )
        if budget is not None and (not isinstance(budget, int) or budget < 0):
            raise TrellisError(f"budget={budget!r}: expected a number of connections, 0 or more")
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
        """Return whether both keep the same connections of the same parameters."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return self.keys() == other.keys() and all(
            torch.equal(mask.cpu(), other[name].cpu()) for name, mask in self.items()
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def kept(self) -> int:
        """Number of kept connections."""
        return sum(int(mask.count_nonzero()) for mask in self.values())

    @property
    def budget(self) -> int:
        """Number of connections that were to be kept."""
        return self.kept if self._budget is None else self._budget

    @property
    def total(self) -> int:
        """Number of connections of the masked parameters."""
        return sum(mask.numel() for mask in self.values())

    @property
    def sparsity(self) -> float:
        """Fraction of the connections that is removed, ``1 - kept / total``."""
        return 1 - self.kept / self.total if self.total else 0.0

    @on_cpu()
    def apply(self, model: Model) -> Model:
        """Mask a model in place.

        Removed connections then read as 0 and get no gradient, and the model can be trained. The
        parameter objects stay the same, so an existing optimizer goes on working. Masks that a
        parameter already has, of Trellis or of `torch.nn.utils.prune`, are replaced; the weights
        are those that are stored. Parameters without a mask here are not changed.

        Args:
            model: A model with these parameter names and shapes.

        Returns:
            The same model.

        Raises:
            TrellisError: A name or shape does not fit. The model is then not changed.
        """
        self._model = weakref.ref(model)
        matched = self._matched(model)
        for group, _ in matched:
            for name, slot in group:
                refuse_shadowed(name, slot)
                if any(map(is_sharded, slot.sources)):
                    raise TrellisError(
                        f"{name!r} is sharded over processes; apply masks to a whole model, or "
                        "train the sharded one with trellis.Pruner"
                    )
        for group, masks in matched:
            if len(masks) == 1:
                attach([slot for _, slot in group], next(iter(masks.values())))
                continue
            # The names of a tied parameter may have different masks after torch's own pruning.
            first = next(iter(masks.values()))
            for name, slot in group:
                attach([slot], masks.get(name, first))
        return model

    @on_cpu()
    def bake(self, model: Model) -> Model:
        """Write the masks into the weights and remove the masks, in place.

        Each masked parameter becomes an ordinary parameter that is 0 where nothing is kept.
        Further training may change these zeros. Another parametrization of a masked parameter,
        such as weight norm, is evaluated and removed too, because its next value would not be
        zero. Masks of other parameters stay.

        Args:
            model: A model with these parameter names and shapes, masked or not.

        Returns:
            The same model.

        Raises:
            TrellisError: A name or shape does not fit, or the names of a tied parameter have
                different masks.
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
                    "which one weight cannot hold; untie them first, or give one mask"
                )
            alone = all(len(users[id(source)]) == 1 for source in slots[0].sources)
            bake(slots, next(iter(masks.values())), alone=alone)
        return model

    @on_cpu()
    def undo(self, model: Model) -> Model:
        """Take the masks off without writing them into the weights, in place.

        Removed connections get back the weights that are stored: those that they had when they
        were removed, and what an optimizer has done to them since. They are 0 if `trellis.Pruner`
        removed them, or if ``model.state_dict()`` was called meanwhile. Masks of other parameters
        and other parametrizations stay.

        Args:
            model: A model with these parameter names and shapes, masked or not.

        Returns:
            The same model.

        Raises:
            TrellisError: A name or shape does not fit.

        Example:
            >>> import trellis
            >>> layer = nn.Linear(4, 2)
            >>> before = layer.weight.detach().clone()
            >>> masks = trellis.prune(layer, torch.zeros(1, 4), sparsity=0.5)
            >>> torch.equal(masks.undo(layer).weight, before), type(layer).__name__
            (True, 'Linear')
        """
        for group, _ in self._matched(model):
            for _, slot in group:
                detach(slot)
        return model

    def plain_state_dict(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the state dict of the unpruned model, with masked weights set to 0.

        It loads with ``strict=True`` into a new model of the same class. Another parametrization
        of a masked weight, such as weight norm, is evaluated, so the new model must not have it.
        The given model is not changed and need not be masked. Tensors without a mask share memory
        with it, as in ``model.state_dict()``.

        Args:
            model: A model with these parameter names and shapes.

        Returns:
            Tensors by the keys of the unpruned model.

        Raises:
            TrellisError: A name or shape does not fit.
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
        """Write a masks file: bit-packed safetensors with a JSON header.

        The file is written completely or not at all. It also holds a hash of the model's current
        weights, under ``provenance["weights"]``.

        Args:
            path: The file to write.
            model: The model whose weights are hashed (default: the model that the masks were last
                applied to, if it still exists).

        Raises:
            TrellisError: The file cannot be written.
        """
        provenance = dict(self.provenance)
        if model is None and self._model is not None:
            model = self._model()
        if model is not None:
            provenance["weights"] = weights_hash(model)
        write_masks(path, self, budget=self.budget, provenance=provenance)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Masks:
        """Read a masks file and check all of its content.

        Args:
            path: A file written by `Masks.save`.

        Returns:
            The masks, equal to those that were saved.

        Raises:
            TrellisError: The file does not exist, is damaged, or is not a masks file.
        """
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
        """Return, for each parameter to mask, its slots by name and its distinct masks by name."""
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
                    f"mask {name!r}: expected the parameter's shape {tuple(shape)}, got "
                    f"{tuple(mask.shape)}; the masks were made for another model"
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
        # Converted to JSON and back, so that loaded masks equal those that were saved.
        result: dict[str, Any] = json.loads(json.dumps(dict(provenance), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TrellisError(
            f"provenance: expected values that JSON can hold, got {provenance!r:.80} ({error})"
        ) from None
    return result


# The masks on a model.


def masks_of(model: nn.Module) -> Masks:
    """Read the masks on a model: those of Trellis and those of `torch.nn.utils.prune`.

    Args:
        model: A pruned model. It is not changed.

    Returns:
        A copy of its masks. Parameters without a mask are left out. A tied parameter is listed
        once, unless its names have different masks.

    Raises:
        TrellisError: The model has no masks.

    Example:
        >>> import trellis
        >>> from torch.nn.utils import prune
        >>> model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 1))
        >>> _ = prune.l1_unstructured(model[0], "weight", amount=6)
        >>> trellis.masks_of(model)
        Masks: 2 of 8 connections kept (75 % pruned) in 1 tensor
    """
    found = {}
    for group in tied(named_slots(model), masked=True):
        name, slot = group[0]
        if slot.mask is not None:
            found[name] = slot.mask.to(torch.bool, copy=True)
    if not found:
        raise TrellisError(
            "the model has no masks, neither of Trellis nor of torch.nn.utils.prune; prune it "
            "first, or apply masks from a file: trellis.Masks.load(path).apply(model)"
        )
    return Masks(found)


def carried_masks(model: nn.Module) -> Masks | None:
    """Return the masks on a model; None if it has none."""
    masked = any(slot.mask is not None for _, slot in named_slots(model))
    return masks_of(model) if masked else None


def attach(slots: Iterable[Slot], mask: Tensor) -> None:
    """Mask one tensor, given by the slots of all its names; replace any mask that it has.

    The names share one `Mask` module, not only one buffer: ``model.to(device)`` replaces buffers
    module by module and would separate them.
    """
    slots = list(slots)
    with torch.inference_mode(False):  # so that the mask can be used in training
        shared = Mask(mask.to(slots[0].sources[0].device, copy=True))
        for slot in slots:
            module, leaf = slot.module, slot.leaf
            if leaf not in module._parameters:  # it has a parametrization or a mask
                detach(slot)
            _own_class(module)
            if ORDER not in module.__dict__:
                module.__dict__[ORDER] = tuple(slots_of(module) | module._parameters)
            if parametrized(module, leaf):
                _chain(module, leaf).append(shared)
            else:
                _register(module, leaf, shared)
            if isinstance(module, nn.RNNBase):
                type(module).__deepcopy__ = _copy_recurrent  # type: ignore[attr-defined]


def refuse_shadowed(name: str, slot: Slot) -> None:
    """Raise if a wrapper has a parameter with the same name as the module that it wraps.

    torch cannot register a parametrization while the name still leads to another attribute.
    """
    parameters, leaf = slot.module._parameters, slot.leaf
    if leaf not in parameters or type(slot.module).__getattr__ is nn.Module.__getattr__:
        return
    before = dict(parameters)
    try:
        del parameters[leaf]
        shadowed = hasattr(slot.module, leaf)
    finally:
        parameters.clear()
        parameters.update(before)  # in the old order
    if shadowed:
        raise TrellisError(
            f"{name!r} cannot be masked: {type(slot.module).__name__} forwards attributes to "
            f"another module, which also has a {leaf!r}; rename the parameter, or leave it out "
            f"(ignore={name!r})"
        )


def detach(slot: Slot) -> None:
    """Remove all masks from a tensor, ours and torch's; its stored values stay."""
    module, leaf = slot.module, slot.leaf
    current = slots_of(module)[leaf]
    if current.hook is not None:
        _remove_torch_pruning(current)
    if any(isinstance(transform, Mask) for transform in current.transforms):
        chain = _chain(module, leaf)
        _own_class(module)
        if all(isinstance(transform, Mask) for transform in chain):
            parametrize.remove_parametrizations(module, leaf, leave_parametrized=False)
        else:
            for index in reversed(range(len(chain))):
                if isinstance(chain[index], Mask):
                    del chain[index]
        _tidy(module)


def bake(slots: Iterable[Slot], mask: Tensor, *, alone: bool) -> None:
    """Make one tensor, given by the slots of all its names, plain: +0.0 where not kept.

    The parameter stays the same object, so that an optimizer goes on working. A new parameter is
    made if it is stored as several tensors or in another shape, or if another tensor of the model
    is computed from it too (``alone`` is false).
    """
    slots = list(slots)
    first = slots[0]
    mask = mask.to(first.sources[0].device)
    parameter = first.sources[0]
    if all(isinstance(transform, Mask) for transform in first.transforms):
        with torch.no_grad():
            parameter.masked_fill_(~mask, 0)
    else:
        value = torch.where(mask, first.bare(), 0)
        if alone and len(first.sources) == 1 and parameter.shape == value.shape:
            with torch.no_grad():
                parameter.copy_(value)
        else:
            parameter = nn.Parameter(value, requires_grad=first.requires_grad)
    for slot in slots:
        detach(slot)
        if parametrized(slot.module, slot.leaf):
            _own_class(slot.module)
            whole = len(slot.sources) == 1
            parametrize.remove_parametrizations(
                slot.module, slot.leaf, leave_parametrized=not whole
            )
            slot.module._parameters[slot.leaf] = parameter  # type: ignore[assignment]
            _tidy(slot.module)


def _register(module: nn.Module, leaf: str, shared: Mask) -> None:
    # torch sets the data of the parameter, which gives it a new node in autograd's graph. Hooks on
    # the old node are lost: `DistributedDataParallel` would wait forever. So torch gets another
    # parameter over the same memory, and the original is put back afterwards.
    parameter = module._parameters[leaf]
    assert parameter is not None
    module._parameters[leaf] = nn.Parameter(parameter.detach(), parameter.requires_grad)
    if not parametrized(module):  # a wrapper may forward the attribute of another module
        module.__dict__["parametrizations"] = None
    # The mask's shape was already checked. Without ``unsafe`` torch would check it again, by
    # computing the masked weight.
    parametrize.register_parametrization(module, leaf, shared, unsafe=True)
    _chain(module, leaf)._parameters["original"] = parameter
    keep_plain_states(module)


def _chain(module: nn.Module, leaf: str) -> parametrize.ParametrizationList:
    chains = module.parametrizations
    assert isinstance(chains, nn.ModuleDict)
    chain = chains[leaf]
    assert isinstance(chain, parametrize.ParametrizationList)
    return chain


def _own_class(module: nn.Module) -> None:
    # The tensors of a parametrized module are properties of a class that torch makes for it. Deep
    # copies share that class, so a change to a copy would change the original without this.
    if parametrized(module):
        kind = type(module)
        module.__class__ = type(kind.__name__, kind.__bases__, dict(vars(kind)))


def _remove_torch_pruning(slot: Slot) -> None:
    # `torch.nn.utils.prune.remove` would write the mask into the weights; here they are kept.
    module, leaf = slot.module, slot.leaf
    hooks = module._forward_pre_hooks
    order = tuple(slots_of(module))
    for handle in [handle for handle, hook in hooks.items() if hook is slot.hook]:
        del hooks[handle]
    parameter = module._parameters.pop(f"{leaf}_orig")
    del module._buffers[f"{leaf}_mask"]
    del module.__dict__[leaf]
    module.register_parameter(leaf, parameter)
    _settle(module, order)


def _tidy(module: nn.Module) -> None:
    """After a mask is removed, restore the order of the parameters and remove our attributes."""
    _settle(module, module.__dict__.get(ORDER, ()))
    transforms = (t for slot in slots_of(module).values() for t in slot.transforms)
    if not any(isinstance(transform, Mask) for transform in transforms):
        module.__dict__.pop(ORDER, None)


def _settle(module: nn.Module, order: tuple[str, ...]) -> None:
    for name in (*order, *(name for name in module._parameters if name not in order)):
        if name in module._parameters:
            module._parameters[name] = module._parameters.pop(name)
    if isinstance(module, nn.RNNBase):
        module._init_flat_weights()


def _copy_recurrent(module: nn.RNNBase, memo: dict[int, Any]) -> nn.RNNBase:
    # Recurrent layers keep a list of the weights of the last call. Masked weights are not leaves,
    # so they cannot be copied. The layer rebuilds the list at the next call if it is outdated.
    kind = type(module)
    copied = kind.__new__(kind)
    memo[id(module)] = copied
    attributes = {k: v for k, v in module.__dict__.items() if not k.startswith("_flat_weight")}
    copied.__dict__.update(deepcopy(attributes, memo))
    copied.__dict__["_flat_weights_names"] = list(module._flat_weights_names)
    copied._init_flat_weights()
    return copied
