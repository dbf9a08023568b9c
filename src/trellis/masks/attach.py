"""Attach a mask to a tensor, detach it, or write it into the weights."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..errors import TrellisError
from .slots import ORDER, Mask, Slot, parametrized, slots_of


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
