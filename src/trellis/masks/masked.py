"""Masked models: their plain form, their state dicts, and how masks are attached and detached."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.utils import parametrize
from torch.optim.swa_utils import AveragedModel

from ..errors import TrellisError
from .slots import (
    ORDER,
    TRACING,
    Entangled,
    Mask,
    Slot,
    evaluating,
    named_plain_modules,
    named_slots,
    parametrized,
    slots_of,
    structural_copy,
    tied,
)

# Plain names and effective tensors: a model without its masks and parametrizations.


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


# State dicts and averages of masked models.
#
# A masked model has the state dict of the unpruned one: the same keys in the same order, and 0
# where nothing is kept. What a framework saves therefore loads into a new model, with or without
# Trellis. The masks themselves are in the metadata of the state dict. `torch.save` keeps the
# metadata, safetensors does not.
#
# An average of a model's weights (`torch.optim.swa_utils.AveragedModel`) is a copy of the model
# that is never trained itself. Its masks follow those of the model.


METADATA = "trellis.masks"  # the masks of one module, in the metadata of a state dict
State = TypeVar("State", bound=Mapping[str, Tensor])


def keep_plain_states(module: nn.Module) -> None:
    """Give a masked module the state dict of the unpruned one, and let averages keep its masks.

    torch has made a class for this module alone. The methods go when the class goes, with the last
    parametrization. Hooks would stay in copies, and refer to modules.
    """
    kind: Any = type(module)
    base = kind.__bases__[0]
    if "_load_from_state_dict" not in vars(kind):
        kind.state_dict = _plain_state_dict(base.state_dict)
        kind._load_from_state_dict = _loading_plain(base._load_from_state_dict)
    _watch_registrations()


def _plain_state_dict(written: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``state_dict`` for a class of masked modules, by that of the unpruned class."""

    def state_dict(module: nn.Module, *args: Any, **options: Any) -> Any:
        state = written(module, *args, **options)
        prefix = args[1] if len(args) > 1 else options.get("prefix", "")
        own: dict[str, Tensor] = {}  # what this module has written: the last keys
        while state and (last := next(reversed(state))).startswith(prefix):
            own[last] = state.pop(last)
        own = dict(reversed(own.items()))
        about = getattr(state, "_metadata", {})
        masks = {}
        for leaf, chain in _masked(module).items():
            stored, mask = chain.original, cast(Mask, chain[0]).now()
            # In place, because averages are often made by writing into a state dict. What an
            # optimizer did to pruned weights has no effect anyway.
            with torch.no_grad():
                stored.masked_fill_(~mask, 0)
            place = f"{prefix}parametrizations.{leaf}"
            own[prefix + leaf] = own.pop(f"{place}.original")
            for index in range(len(chain)):
                own.pop(f"{place}.{index}.mask")
                about.pop(f"{place}.{index}", None)
            about.pop(place, None)
            masks[leaf] = mask.detach()
        if masks:
            if len(masks) == len(cast(nn.ModuleDict, module.parametrizations)):
                about.pop(f"{prefix}parametrizations", None)
            about.setdefault(prefix[:-1], {})[METADATA] = masks
        for name in (*(prefix + leaf for leaf in module.__dict__.get(ORDER, ())), *list(own)):
            if name in own:
                state[name] = own.pop(name)
        return state

    return state_dict


def _loading_plain(load: Callable[..., None]) -> Callable[..., None]:
    """Return ``_load_from_state_dict`` for a class of masked modules.

    It reads the keys of the unpruned model, and those that torch gives to parametrized tensors.
    Without masks in the metadata, the masks stay.
    """

    def _load_from_state_dict(
        module: nn.Module, state: dict[str, Any], prefix: str, about: dict[str, Any],
        strict: bool, missing: list[str], *lists: list[str],
    ) -> None:  # fmt: skip
        masks = about.get(METADATA, {})
        for leaf, chain in _masked(module).items():
            place = f"{prefix}parametrizations.{leaf}"
            if prefix + leaf in state:
                state[f"{place}.original"] = state.pop(prefix + leaf)
            elif f"{place}.original" not in state:
                missing.append(prefix + leaf)
                state[f"{place}.original"] = chain.original
            for index, mask in enumerate(chain):
                known = masks.get(leaf, cast(Mask, mask).now())
                state.setdefault(f"{place}.{index}.mask", known)
        load(module, state, prefix, about, strict, missing, *lists)

    return _load_from_state_dict


def _masked(module: nn.Module) -> dict[str, parametrize.ParametrizationList]:
    """Return the chains of the module's tensors that have masks and nothing else."""
    if not parametrized(module):
        return {}
    chains = cast(Mapping[str, parametrize.ParametrizationList], module.parametrizations)
    return {
        leaf: chain
        for leaf, chain in chains.items()
        if chain.is_tensor and all(isinstance(transform, Mask) for transform in chain)
    }


@cache
def _watch_registrations() -> None:
    """Look at every module that becomes part of another, from now on."""

    def watch(module: nn.Module, name: str, part: nn.Module | None) -> None:
        if part is None:
            return
        # `AveragedModel` copies the model and its masks. It would then average the masks (or the
        # model would be pruned further, and the copy would not).
        if isinstance(module, AveragedModel):
            for mask in part.modules():
                if isinstance(mask, Mask):
                    mask.follow(mask.origin)
        # peft's `merge_and_unload` writes the adapter into the weight that a layer computes with,
        # which is a copy under a mask. It then puts the layer in the place of the adapter's.
        adapter = module._modules.get(name)
        if getattr(adapter, "merged_adapters", None) and _masked(part):
            adapter.merged_adapters.clear()  # type: ignore[union-attr, operator]
            raise TrellisError(
                f"expected no masks on {name!r} in merge_and_unload(), which would lose the "
                "adapter; call trellis.integrations.peft.merge(model) instead"
            )

    register_module_module_registration_hook(watch)

    # An average that was made before the masks would bring pruned weights back, or fail because
    # the parameters have another order.
    update = AveragedModel.update_parameters

    @wraps(update)
    def update_parameters(self: AveragedModel, model: nn.Module) -> None:
        masked = any(isinstance(part, Mask) for part in model.modules())
        if masked and not any(isinstance(part, Mask) for part in self.module.modules()):
            raise TrellisError(
                "expected an average of the weights with the masks of the model, got one that was "
                "made before them; call pruner.share_masks(average) once, or make it afterwards"
            )
        update(self, model)

    AveragedModel.update_parameters = update_parameters  # type: ignore[method-assign]


# Attach masks to tensors, detach them, or write them into the weights.


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


# Whether weights and outputs are finite, checked before they are used or written.


def check_finite(
    tensors: Mapping[str, Tensor], do: str, *, place: str = "", buffers: Collection[str] = ()
) -> None:
    """Raise if a tensor holds NaN or infinity; the message names the first such tensor.

    Args:
        tensors: The tensors by name.
        do: What to do, for the message.
        place: Where the tensors are from, for the message.
        buffers: Names that may hold infinity, as attention masks do, but not NaN.

    >>> check_finite({"fc.weight": torch.tensor([1.0, torch.nan])}, "train the model again")
    Traceback (most recent call last):
    trellis.errors.TrellisError: 'fc.weight' holds 1 value that is not finite (nan); train the \
model again
    """
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.device.type == "meta":
            continue
        if bool(tensor.detach().sum().isfinite()):  # then every entry is finite
            continue
        bad = tensor.isnan() if name in buffers else ~tensor.isfinite()
        if count := int(bad.sum()):
            values = "value that is" if count == 1 else "values that are"
            raise TrellisError(
                f"{place}{name!r} holds {count:,} {values} not finite ({tensor[bad][0].item()}); "
                f"{do}"
            )


def check_model(model: nn.Module, do: str) -> None:
    """Check a model's effective parameters and its buffers."""
    check_finite(plain_tensors(model), do)
    buffers = dict(model.named_buffers())
    check_finite(buffers, do, buffers=buffers.keys())


def check_outputs(outputs: Iterable[Any], do: str) -> None:
    """Raise if an output is NaN. Infinity is allowed: masked scores are infinite."""
    for number, output in enumerate(outputs):
        array = output.detach() if isinstance(output, Tensor) else torch.as_tensor(output)
        if array.is_floating_point() and bool(array.isnan().any()):
            raise TrellisError(f"output {number} of the model is NaN; {do}")
