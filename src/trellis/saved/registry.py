"""The architectures that a folder can be loaded into without being given a model."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from torch import Tensor, nn
from torch.nn.utils import parametrize

from trellis.errors import TrellisError


class Saved(Protocol):
    """What a registered class can do, besides being a ``torch.nn.Module``."""

    def described(self) -> dict[str, Any]:
        """All that `rebuilt` needs beside the tensors, as JSON can hold it."""

    @classmethod
    def rebuilt(cls, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> nn.Module:
        """A model of that architecture, made on the ``meta`` device: its weights come later.

        The description may be anything that JSON can say: one that does not fit ``tensors`` must
        not cost more time than they do.
        """


Kind = TypeVar("Kind", bound=type)
_KINDS: dict[str, type] = {}
# Imported when a folder asks for them, so that ``import trellis`` need not.
_HOMES = {"GCN": "trellis.skeleton.gcn", "Compacted": "trellis.ship.compact.module"}


def registered(name: str) -> Callable[[Kind], Kind]:
    """A class decorator: folders that say ``name`` are loaded into this class."""

    def register(kind: Kind) -> Kind:
        _KINDS[name] = kind
        return kind

    return register


def name_of(model: nn.Module) -> str | None:
    """The name that the model's class is registered under, if it is.

    >>> name_of(nn.Linear(2, 1)) is None
    True
    """
    own = parametrize.type_before_parametrizations(model)
    return next((name for name, kind in _KINDS.items() if kind is own), None)


def kind_named(name: str) -> type[Saved]:
    """The class registered under ``name``."""
    if name not in _KINDS and name in _HOMES:
        importlib.import_module(_HOMES[name])
    if name not in _KINDS:
        known = ", ".join(sorted(_KINDS.keys() | _HOMES))
        raise TrellisError(
            f"architecture {name!r} is none of Trellis's own ({known}): give a model to load "
            "into, trellis.load(folder, into=model)"
        )
    return cast(type[Saved], _KINDS[name])
