"""Plain names and effective tensors: a model without its masks and parametrizations."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .slots import (
    ORDER,
    TRACING,
    Entangled,
    Slot,
    evaluating,
    named_plain_modules,
    named_slots,
    parametrized,
    slots_of,
    structural_copy,
    tied,
)

R = TypeVar("R")


def plain_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the effective value of every parameter by its plain name, detached.

    Tied parameters appear once, under their first name. Parametrized tensors are evaluated as in
    eval mode, and masks of torch are applied. All other tensors share memory with the model.

    >>> from torch.nn.utils.parametrizations import weight_norm
    >>> model = nn.Sequential(weight_norm(nn.Linear(2, 3)), nn.Linear(3, 1, bias=False))
    >>> {name: tuple(tensor.shape) for name, tensor in plain_tensors(model).items()}
    {'0.weight': (3, 2), '0.bias': (3,), '1.weight': (1, 3)}
    """
    return {group[0][0]: group[0][1].value() for group in tied(named_slots(model), masked=True)}


def aliases(model: nn.Module) -> dict[str, list[str]]:
    """Return, for each name in `plain_tensors`, all plain names of that tensor, itself first.

    >>> model = nn.Sequential(nn.Embedding(5, 2), nn.Linear(2, 5, bias=False))
    >>> model[1].weight = model[0].weight
    >>> aliases(model)
    {'0.weight': ['0.weight', '1.weight']}
    """
    return {
        group[0][0]: [name for name, _ in group] for group in tied(named_slots(model), masked=True)
    }


@contextmanager
def plain(model: nn.Module) -> Iterator[nn.Module]:
    """Give the model in eval mode, without masks and parametrizations.

    The result is a copy of its structure over the same tensors (see `structural_copy`), so that
    other threads can run the model at the same time. In the copy, each parametrized or pruned
    tensor is an ordinary parameter with its effective value (``requires_grad=False``) under its
    plain name. Tied parameters are one object.

    If a model cannot be copied (see `entangle`), the model itself is changed in place. At the end,
    even after an error, every module gets back its class, hooks, parametrizations, buffers and
    training flag. Until then only one thread may run it.

    >>> from torch.nn.utils.parametrizations import weight_norm
    >>> model = weight_norm(nn.Linear(2, 3))
    >>> with plain(model) as seen:
    ...     list(seen.state_dict()), type(seen).__name__, seen.training
    (['weight', 'bias'], 'Linear', False)
    >>> type(model).__name__, model.training
    ('ParametrizedLinear', True)
    """
    try:
        seen = structural_copy(model) if not is_entangled(model) else model
    except Entangled:
        seen = model
    if seen is model or is_entangled(model):  # another thread may have noted it meanwhile
        entangle(model)
        with TRACING, _rearranged(model):
            yield model
    else:
        with _rearranged(seen):
            yield seen


_ENTANGLED: weakref.WeakValueDictionary[int, nn.Module] = weakref.WeakValueDictionary()


def entangle(model: nn.Module) -> None:
    """Note that a copy cannot replace this model: from now on `plain` changes the model itself."""
    _ENTANGLED[id(model)] = model


def is_entangled(model: nn.Module) -> bool:
    return _ENTANGLED.get(id(model)) is model


def undisturbed(model: nn.Module, read: Callable[[], R]) -> R:
    """Call ``read`` while no other thread has changed the model in place (see `plain`)."""
    if not is_entangled(model):
        try:
            found = read()
        except Exception:
            if not is_entangled(model):
                raise
        else:
            if not is_entangled(model):
                return found
    with TRACING:
        return read()


@contextmanager
def _rearranged(model: nn.Module) -> Iterator[None]:
    saved: list[tuple[nn.Module, type[nn.Module], dict[str, Any]]] = []
    with evaluating(model):
        swaps = _stand_ins(model)
        try:
            for module, stand_ins in swaps.values():
                saved.append((module, module.__class__, dict(module.__dict__)))
                _swap(module, stand_ins)
            yield
        finally:
            for module, kind, attributes in saved:
                module.__class__ = kind
                module.__dict__.clear()
                module.__dict__.update(attributes)


_StandIns = dict[str, Tensor]


def _stand_ins(model: nn.Module) -> dict[int, tuple[nn.Module, _StandIns]]:
    """Return, by the module's id, an ordinary tensor for each displaced tensor."""
    swaps: dict[int, tuple[nn.Module, _StandIns]] = {}

    def add(slot: Slot, tensor: Tensor) -> None:
        swaps.setdefault(id(slot.module), (slot.module, {}))[1].setdefault(slot.leaf, tensor)

    for group in tied(named_slots(model), masked=True):
        if group[0][1].displaced:
            parameter = nn.Parameter(group[0][1].value(), requires_grad=False)
            for _, slot in group:
                add(slot, parameter)
    for _, module in named_plain_modules(model):
        for slot in slots_of(module).values():
            if not slot.is_parameter:
                add(slot, slot.value())
    return swaps


def _swap(module: nn.Module, stand_ins: _StandIns) -> None:
    slots = slots_of(module)
    attributes = module.__dict__
    # New dicts, so that the old ones can be restored unchanged.
    parameters = {leaf: stand_ins.get(leaf, slot.sources[0]) for leaf, slot in slots.items()}
    empty = {name: None for name, value in module._parameters.items() if value is None}
    buffers = dict(module._buffers)
    hooks = module._forward_pre_hooks.copy()
    for leaf, slot in slots.items():
        if not slot.is_parameter:
            buffers[leaf] = parameters.pop(leaf)
        if slot.hook is not None:
            del buffers[f"{leaf}_mask"]
            del attributes[leaf]  # the product that torch's hook computed
            for handle in [handle for handle, hook in hooks.items() if hook is slot.hook]:
                del hooks[handle]
    modules = dict(module._modules)
    if parametrized(module):
        del modules["parametrizations"]
        module.__class__ = type(module).__bases__[0]  # the class before parametrization
    attributes.update(
        _parameters=parameters | empty, _buffers=buffers, _modules=modules, _forward_pre_hooks=hooks
    )
    attributes.pop(ORDER, None)
    if isinstance(module, nn.RNNBase):
        with torch.no_grad():
            module._init_flat_weights()  # recurrent layers keep a list of their weights
