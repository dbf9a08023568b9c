"""Copy the structure of a model but not its tensors.

The copy can be changed, run and traced while other threads run the model itself. Modules and their
containers are new. Parameters, buffers and everything else are shared, so a copy needs little
memory, and objects that cannot be copied (locks, open files, tensors with a history) are no
problem.
"""

from __future__ import annotations

import functools
import gc
import threading
import types
import weakref
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, fx, nn

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
