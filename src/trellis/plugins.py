"""A registry of named functions and classes that users and installed packages can extend.

Pruning methods, readers of recordings and export targets are found in this way. Each is registered
with a decorator. A package can also offer it through an entry point. It is imported only when
somebody asks for the name, so an installed package runs no code before.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from .errors import TrellisError

T = TypeVar("T")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*", re.ASCII)


class Registry(Generic[T]):
    """Values by name: those registered, and those that entry points offer.

    Args:
        kind: What the values are called in messages, such as ``"reader"``.
        group: The entry point group, such as ``"trellis.readers"``.
        decorator: The public decorator that registers a function, for messages.
        built_in: Modules that register a name when they are imported, on first use.

    >>> tools = Registry("tool", "trellis.doctest", "@register_tool")
    >>> tools.add("hammer", 1, print)
    >>> tools.get("hammer"), tools.get("saw"), tools.names()
    (1, None, ['hammer'])
    """

    def __init__(
        self, kind: str, group: str, decorator: str, built_in: Mapping[str, str] | None = None
    ) -> None:
        self.kind, self.group, self.decorator = kind, group, decorator
        self.built_in = dict(built_in or {})
        self.entries: dict[str, T] = {}
        self._homes: dict[str, str] = {}

    def check_name(self, name: object) -> None:
        """Raise unless ``name`` can be registered and written on a command line."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise TrellisError(
                f"invalid {self.kind} name {name!r}; use lower-case letters, digits, '-' and '_'"
            )

    def check_free(self, name: str, function: Callable[..., Any]) -> str:
        """Return where ``function`` is defined; raise if another function has the name."""
        home = f"{function.__module__}.{function.__qualname__}"
        other = (self._homes if name in self.entries else self.built_in).get(name)
        # The same function again is a cell of a notebook that runs again.
        if other is not None and other != home and not home.startswith(f"{other}."):
            raise TrellisError(
                f"the {self.kind} {name!r} is already registered by {other}; choose another name"
            )
        return home

    def add(self, name: str, value: T, function: Callable[..., Any]) -> None:
        """Register ``value`` for ``function``; raise if another function has the name."""
        self.check_name(name)
        self._homes[name] = self.check_free(name, function)
        self.entries[name] = value

    def get(self, name: str) -> T | None:
        """Return the value of that name, imported if need be; None if the name is unknown."""
        if name not in self.entries and name in self.built_in:
            importlib.import_module(self.built_in[name])
        if name not in self.entries:
            for point in self._offered():
                if point.name == name:
                    self._import(point)
        return self.entries.get(name)

    def names(self) -> list[str]:
        """Return all names, sorted; nothing is imported."""
        return sorted({*self.entries, *self.built_in, *(p.name for p in self._offered())})

    def _offered(self) -> tuple[EntryPoint, ...]:
        return tuple(entry_points(group=self.group))

    def _import(self, point: EntryPoint) -> None:
        place = f"the {self.kind} {point.name!r} of the entry point {point.value!r}"
        try:
            point.load()
        except Exception as error:  # somebody else's package: anything can happen
            told = str(error) or type(error).__name__
            raise TrellisError(f"{place} cannot be imported: {told}") from error
        if point.name not in self.entries:
            raise TrellisError(
                f"{place} was imported but did not register; add "
                f"{self.decorator}({point.name!r}) to its function"
            )
