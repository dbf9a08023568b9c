"""Slots: where a module stores a tensor that may have parametrizations or masks.

The *plain name* of a tensor is its name in the unpruned model (``fc.weight``).
`torch.nn.utils.parametrize` moves ``fc.weight`` to ``fc.parametrizations.weight.original`` (or
``original0``, ``original1``, ...). `torch.nn.utils.prune` moves it to ``fc.weight_orig`` and adds
``fc.weight_mask``. A `Slot` says where the tensor is stored and computes its effective value.
"""

from __future__ import annotations

import functools
import gc
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize, prune

from ..errors import TrellisError

# The parametrization of a masked weight.


class Mask(nn.Module):
    """Keep the connections where ``mask`` is True; the others read +0.0.

    This is a parametrization for ``torch.nn.utils.parametrize``. It selects and does not multiply:
    a pruned connection is then never -0.0, NaN or infinite, and its gradient is exactly zero. What
    the optimizer still does to a pruned entry (weight decay, momentum) changes the stored
    parameter only, never what the layer computes.

    >>> mask = Mask(torch.tensor([True, False, False]))
    >>> mask(torch.tensor([-1.0, -2.0, torch.nan]))
    tensor([-1.,  0.,  0.])
    """

    # No buffer: what averages a model's weights would average the mask too, and data-parallel
    # training would send it before every forward pass.
    mask: Tensor
    followed: Mask | None = None

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.mask = mask
        self.__dict__["_copied_from"] = None

    def forward(self, weight: Tensor) -> Tensor:
        return torch.where(self.now().to(weight.device), weight, 0)

    def now(self) -> Tensor:
        """Return the mask; if it follows another one, after copying that one."""
        if self.followed is not None:
            with torch.no_grad():
                self.mask.copy_(self.followed.now())
        return self.mask

    def follow(self, other: Mask | None) -> None:
        """Be equal to another mask from now on, whatever is written into this one; or stop."""
        self.__dict__["followed"] = other  # no submodule

    @property
    def origin(self) -> Mask | None:
        """The mask that this one is a copy of; None if that mask is gone."""
        reference = self.__dict__["_copied_from"]
        origin: Mask | None = None if reference is None else reference()
        return origin

    def __deepcopy__(self, memo: dict[int, Any]) -> Mask:
        copied = type(self)(deepcopy(self.now(), memo))
        copied.training = self.training
        copied.__dict__["_copied_from"] = weakref.ref(self)
        memo[id(self)] = copied
        return copied

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Mask:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.mask = fn(self.mask)
        return self

    def _save_to_state_dict(
        self, destination: dict[str, Tensor], prefix: str, keep_vars: bool
    ) -> None:
        destination[prefix + "mask"] = self.now()

    def _load_from_state_dict(
        self, state: dict[str, Tensor], prefix: str, about: object, strict: bool,
        missing: list[str], unexpected: list[str], errors: list[str],
    ) -> None:  # fmt: skip
        key = prefix + "mask"
        if key not in state:
            missing.append(key)
        elif state[key].shape != self.mask.shape:
            errors.append(
                f"{key}: expected {tuple(self.mask.shape)}, got {tuple(state[key].shape)}"
            )
        else:
            self.mask.copy_(state[key])

    def right_inverse(self, weight: Tensor) -> Tensor:
        # The identity keeps the same Parameter object, so an optimizer made before pruning goes on
        # working, and `layer.weight = value` is allowed on a masked layer.
        return weight

    def extra_repr(self) -> str:
        return f"shape={tuple(self.mask.shape)}"


# A parametrization removes a tensor from its module's dict of parameters, which loses its place in
# the order. Applying masks stores the order under this name in the module itself.
ORDER = "_trellis_order"


@dataclass(frozen=True, eq=False)
class Slot:
    """Describe one tensor of one module, by its plain name inside that module.

    ``sources`` are the stored tensors, ``transforms`` the parametrizations between them and the
    effective tensor, and ``hook`` is torch's own pruning, if any.
    """

    module: nn.Module
    leaf: str
    sources: tuple[Tensor, ...]
    transforms: tuple[nn.Module, ...] = ()
    hook: prune.BasePruningMethod | None = None

    @property
    def displaced(self) -> bool:
        """Whether the tensor has a parametrization or torch's pruning."""
        return bool(self.transforms) or self.hook is not None

    @property
    def is_parameter(self) -> bool:
        return any(isinstance(source, nn.Parameter) for source in self.sources)

    @property
    def requires_grad(self) -> bool:
        return any(source.requires_grad for source in self.sources)

    @property
    def mask(self) -> Tensor | None:
        """The mask on this tensor: ours (boolean) or torch's (of any type); None without one."""
        if self.hook is not None:
            return self.module._buffers[f"{self.leaf}_mask"]
        return next((t.now() for t in self.transforms if isinstance(t, Mask)), None)

    @property
    def overruled(self) -> bool:
        """Whether a parametrization was registered after our mask, which may undo the mask."""
        masked = any(isinstance(transform, Mask) for transform in self.transforms)
        return masked and not isinstance(self.transforms[-1], Mask)

    def value(self) -> Tensor:
        """Return the effective tensor, with all parametrizations and masks."""
        value = self._through(self.transforms)
        if self.hook is not None:
            # Multiplied as torch does it: an audit must see what the model computes.
            assert self.mask is not None
            value = value * self.mask.to(value.dtype)
        return value.detach()

    def bare(self) -> Tensor:
        """Return the tensor without masks, ours or torch's, but with other parametrizations."""
        return self._through(t for t in self.transforms if not isinstance(t, Mask)).detach()

    def key(self, *, masked: bool) -> Hashable:
        """Return a key that all slots of one tensor share; masks count only if ``masked``."""
        chain = tuple(
            "mask" if isinstance(t, Mask) else id(t)
            for t in self.transforms
            if masked or not isinstance(t, Mask)
        )
        return (*map(_identity, self.sources), *chain, masked and self.hook is not None)

    def _through(self, transforms: Iterable[nn.Module]) -> Tensor:
        values = self.sources
        with torch.no_grad():
            for transform in transforms:
                values = (_evaluated(transform, values),)
        (value,) = values
        return value


def slots_of(module: nn.Module) -> dict[str, Slot]:
    """Return the module's own parameters and parametrized buffers, by plain name, in order."""
    pruned = {slot.leaf: slot for slot in _pruned(module)}
    displaced = {slot.leaf: slot for slot in _parametrized(module)} | pruned
    if not displaced and not module._parameters:
        return {}
    stored = {
        name: Slot(module, name, (parameter,))
        for name, parameter in module._parameters.items()
        if parameter is not None and name.removesuffix("_orig") not in pruned
    }
    # If the order is not known, parametrized tensors come first: usually they are weights, which
    # layers define before their biases.
    found = displaced | stored
    order = dict.fromkeys((*module.__dict__.get(ORDER, ()), *found))
    return {name: found[name] for name in order if name in found}


def named_slots(model: nn.Module) -> Iterator[tuple[str, Slot]]:
    """Yield every parameter under each of its plain names, in the order of ``named_parameters``.

    >>> from torch.nn.utils import prune
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1, bias=False))
    >>> _ = prune.l1_unstructured(model[0], "weight", amount=2)
    >>> [name for name, slot in named_slots(model)]
    ['0.weight', '0.bias', '2.weight']
    """
    for prefix, module in named_plain_modules(model):
        for leaf, slot in slots_of(module).items():
            if not slot.is_parameter:
                continue
            name = f"{prefix}.{leaf}" if prefix else leaf
            if any(is_lazy(source) for source in slot.sources):
                raise TrellisError(
                    f"parameter {name!r} has no shape yet; call the model once on an example "
                    "input to initialize its lazy layers"
                )
            yield name, slot


def named_plain_modules(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield every module under every name, without those of `torch.nn.utils.parametrize`."""
    refuse_script(model, prefix)
    yield prefix, model
    hidden = "parametrizations" if parametrized(model) else None
    for name, child in model._modules.items():
        if child is not None and name != hidden:
            yield from named_plain_modules(child, f"{prefix}.{name}" if prefix else name)


def refuse_script(module: nn.Module, place: str = "") -> None:
    """Raise if a module is TorchScript, which hides its weights from Python."""
    if isinstance(module, torch.jit.ScriptModule):
        raise TrellisError(
            f"expected a torch.nn.Module, got the TorchScript module {module.original_name!r}"
            f"{f' at {place!r}' if place else ''}; pass the module as it was before "
            "torch.jit.script or torch.jit.trace"
        )


def refuse_inference(model: nn.Module) -> None:
    """Raise if a tensor of the model was made in inference mode, so that it cannot be changed."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_inference():
            raise TrellisError(
                f"expected tensors that can be trained, got {name!r}, which was made in "
                "torch.inference_mode(); make the model outside of it (torch.no_grad() is fine)"
            )


def tied(named: Iterable[tuple[str, Slot]], *, masked: bool) -> list[list[tuple[str, Slot]]]:
    """Group the names of one tensor; groups and names keep their order.

    With ``masked``, names with different masks are different tensors, as they are when the model
    runs. Without it, a tied parameter is one tensor, whatever the masks of its names.
    """
    groups: dict[Hashable, list[list[tuple[str, Slot]]]] = {}
    ordered: list[list[tuple[str, Slot]]] = []
    for name, slot in named:
        candidates = groups.setdefault(slot.key(masked=masked), [])
        for group in candidates:
            if not masked or _same(group[0][1].mask, slot.mask):
                group.append((name, slot))
                break
        else:
            candidates.append([(name, slot)])
            ordered.append(candidates[-1])
    return ordered


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Put modules and their submodules in eval mode, and restore each flag afterwards.

    The flags are set directly, not by ``eval()``, since users override ``train``. Eval mode is
    needed because some parametrizations (spectral norm) change their buffers in training mode.
    """
    flags = [(module, module.training) for root in modules for module in root.modules()]
    try:
        for module, _ in flags:
            module.training = False
        yield
    finally:
        for module, training in flags:
            module.training = training


def _evaluated(transform: nn.Module, values: tuple[Tensor, ...]) -> Tensor:
    """Evaluate a parametrization in eval mode.

    If it is in training mode, a copy is evaluated: another thread may be training.
    """
    if isinstance(transform, Mask) or not any(m.training for m in transform.modules()):
        result: Tensor = transform(*values)
        return result
    try:
        asked = structural_copy(transform)
    except Entangled:
        asked = transform
    with TRACING if asked is transform else nullcontext(), evaluating(asked):
        result = asked(*values)
        return result


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def parametrized(module: nn.Module, leaf: str | None = None) -> bool:
    """Return whether a tensor of the module itself has a parametrization.

    `torch.nn.utils.parametrize.is_parametrized` reads an attribute, so a wrapper that forwards
    attributes answers for the module that it wraps.
    """
    chains = module._modules.get("parametrizations")
    if not isinstance(chains, nn.ModuleDict):
        return False
    return len(chains) > 0 if leaf is None else leaf in chains


def _parametrized(module: nn.Module) -> Iterator[Slot]:
    if not parametrized(module):
        return
    lists = module.parametrizations
    assert isinstance(lists, nn.ModuleDict)
    for leaf, chain in lists.items():
        assert isinstance(chain, parametrize.ParametrizationList)
        names = ["original"] if chain.is_tensor else [f"original{i}" for i in range(chain.ntensors)]
        yield Slot(module, leaf, tuple(getattr(chain, name) for name in names), tuple(chain))


def _pruned(module: nn.Module) -> Iterator[Slot]:
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, prune.BasePruningMethod):
            leaf = hook._tensor_name
            source = module._parameters[f"{leaf}_orig"]
            assert source is not None
            yield Slot(module, leaf, (source,), (), hook)


def is_sharded(tensor: Tensor) -> bool:
    """Return whether a tensor is sharded over processes: a DTensor, without its slow import."""
    return hasattr(tensor, "full_tensor")


def _identity(tensor: Tensor) -> Hashable:
    # Tied weights are nearly always one Parameter object; two objects over the same memory are
    # tied as well. Tensors without memory (meta, empty) are identified by the object.
    if is_sharded(tensor) or tensor.device.type == "meta" or tensor.numel() == 0 or is_lazy(tensor):
        return id(tensor)
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


# Held while torch traces, since a process can trace one model at a time, and while a model that
# cannot be copied is changed in place.
TRACING = threading.RLock()
MOST = 100_000  # objects that are searched for the model's modules
_ATOMS = (
    Tensor,
    str,
    bytes,
    int,
    float,
    complex,
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
)


class Entangled(Exception):
    """Signal that an object which the copy would share refers to the model's own modules."""


def structural_copy(model: nn.Module) -> nn.Module:
    """Return new modules over the same tensors, with the nesting, ties and hooks of ``model``.

    Lists, dictionaries, bound methods, partial functions and weak references are followed. If they
    refer to a module of the model, those of the copy refer to the copy of the module.

    Raises:
        Entangled: Something else refers to a module of the model, such as a closure. A copy would
            call the model itself.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> copied = structural_copy(model)
    >>> copied[0] is model[0], copied[0].weight is model[0].weight
    (False, True)
    """
    return _Copying(model).root


class _Copying:
    def __init__(self, model: nn.Module) -> None:
        self.made: dict[int, Any] = {}  # of what is copied, by its id
        self.clean: dict[int, object] = {}  # what leads to no module; held, so that ids stay good
        modules = list(model.modules())
        for module in modules:
            if isinstance(module, torch.jit.ScriptModule):
                raise Entangled(f"{type(module).__name__} keeps its modules in C++")
            try:
                self.made[id(module)] = object.__new__(type(module))
            except TypeError as error:
                raise Entangled(str(error)) from None
        self.modules = set(self.made)
        for module in modules:
            attributes = dict(module.__dict__)
            graph = attributes.pop("_graph", None) if isinstance(module, fx.GraphModule) else None
            made = {name: self.copied(value) for name, value in attributes.items()}
            if graph is not None:  # knows its module, and runs without it
                made["_graph"] = graph
            self.made[id(module)].__dict__.update(made)
        self.root: nn.Module = self.made[id(model)]

    def copied(self, value: Any) -> Any:
        """Return what the copy holds in place of ``value``, often the same object."""
        if value is None or isinstance(value, _ATOMS):
            return value
        if id(value) in self.made:
            return self.made[id(value)]
        kind = type(value)
        made: Any
        if kind in (dict, OrderedDict):
            made = self.made[id(value)] = kind()
            made.update((self.copied(k), self.copied(v)) for k, v in value.items())
        elif kind is list:
            made = self.made[id(value)] = []
            made.extend(map(self.copied, value))
        elif kind in (tuple, set, frozenset):
            made = kind(map(self.copied, value))
        elif kind is types.MethodType:
            made = types.MethodType(self.copied(value.__func__), self.copied(value.__self__))
        elif kind is functools.partial:
            args, keywords = self.copied(value.args), self.copied(value.keywords)
            made = functools.partial(self.copied(value.func), *args, **keywords)
            made.__dict__.update(self.copied(value.__dict__))
        elif kind is weakref.ref:
            target = value()
            made = weakref.ref(self.made[id(target)]) if id(target) in self.modules else value
        else:
            self.search(value)
            made = value
        return made

    def search(self, value: object) -> None:
        """Raise if ``value`` leads to a module of the model."""
        waiting = [value]
        while waiting:
            found = waiting.pop()
            if isinstance(found, weakref.ProxyTypes):
                raise Entangled("a weak reference")
            if found is None or isinstance(found, _ATOMS) or id(found) in self.clean:
                continue
            if id(found) in self.modules:
                raise Entangled(f"a {type(value).__name__} refers to a module of the model")
            if len(self.clean) > MOST:
                raise Entangled(f"a {type(value).__name__} refers to too much to be searched")
            self.clean[id(found)] = found
            if isinstance(found, weakref.ref):
                waiting.append(found())
            elif isinstance(found, types.FunctionType):  # and not all of its file
                waiting += [found.__closure__, found.__defaults__, found.__kwdefaults__]
                waiting.append(found.__dict__)
            else:
                waiting += gc.get_referents(found)
