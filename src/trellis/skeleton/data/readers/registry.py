"""The registry of readers: which function reads ``fpha:PATH``, ``csv:PATH`` and so on.

The built-in readers and those of users register in the same way, with :func:`register_reader`.
An installed package can offer readers through the entry point group ``trellis.readers``. Such a
package is imported only when a source names its reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from ....errors import TrellisError
from ..dataset import Skeletons
from .reading import Reading

GROUP = "trellis.readers"
Read = Callable[[Path, str, Reading], Skeletons]
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*", re.ASCII)


@dataclass(frozen=True)
class Reader:
    """How one kind of source is read; the first protocol is the default."""

    read: Read
    protocols: tuple[str, ...]
    about: str
    takes_path: bool


READERS: dict[str, Reader] = {}


def register_reader(
    name: str,
    *,
    protocols: tuple[str, ...] = ("split",),
    about: str = "",
    takes_path: bool = True,
) -> Callable[[Read], Read]:
    """Register a function that reads recordings, under the name that sources start with.

    The function is called as ``read(path, protocol, reading)`` and returns `Skeletons`. ``path``
    is a `pathlib.Path`, ``protocol`` one of ``protocols``. ``reading`` is a `Reading`: it reads
    files with a progress bar, skips or raises for bad ones, and puts the result together.

    Args:
        name: Lower-case letters, digits, ``-`` and ``_``. ``load_dataset("name:PATH")`` and every
            command that takes a source then know the reader.
        protocols: The ways in which the reader can divide recordings; the first is the default.
        about: What the recordings are, in a few words.
        takes_path: Whether the source is ``name:PATH``. Otherwise it is ``name`` alone, and
            ``path`` is empty.

    Returns:
        A decorator that registers the function and returns it unchanged.

    Raises:
        TrellisError: If the name is invalid, or another reader has it.

    >>> import numpy as np
    >>> from trellis.skeleton import Entry, Layout, load_dataset
    >>> arm = Layout("arm", ("shoulder", "hand"), parents=(-1, 0))
    >>> @register_reader("doctest-arms", takes_path=False)
    ... def read(path, protocol, reading):
    ...     entries = [Entry(f"take {n}", path, label=n % 2) for n in range(8)]
    ...     found = reading.frames(entries, lambda entry: np.zeros((10, 2, 3), np.float32))
    ...     return reading.result(found, ["wave", "point"], arm)
    >>> len(load_dataset("doctest-arms"))
    8
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TrellisError(
            f"invalid reader name {name!r}; use lower-case letters, digits, '-' and '_'"
        )
    if isinstance(protocols, str) or not protocols:
        raise TrellisError(f"expected a tuple of protocol names, got {protocols!r}")

    def register(read: Read) -> Read:
        other = READERS.get(name)
        if other is not None and _home(other.read) != _home(read):  # a cell may run again
            raise TrellisError(
                f"the reader {name!r} is already registered by {_home(other.read)}; choose "
                "another name"
            )
        READERS[name] = Reader(read, tuple(protocols), about, takes_path)
        return read

    return register


def reader_for(name: str) -> Reader | None:
    """Return the reader of that name, imported from its package if need be; None if unknown."""
    if name not in READERS:
        for point in _offered():
            if point.name == name:
                _import(point)
    return READERS.get(name)


def known_sources() -> list[str]:
    """Return how a source can be written, one string per reader, by name."""
    offered = [f"{point.name}:PATH" for point in _offered() if point.name not in READERS]
    known = [f"{name}:PATH" if r.takes_path else name for name, r in READERS.items()]
    return sorted({*known, *offered})


def _offered() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def _import(point: EntryPoint) -> None:
    place = f"the reader {point.name!r} of the entry point {point.value!r}"
    try:
        point.load()
    except Exception as error:  # somebody else's package: anything can happen
        told = str(error) or type(error).__name__
        raise TrellisError(f"{place} cannot be imported: {told}") from error
    if point.name not in READERS:
        raise TrellisError(
            f"{place} was imported but did not register; add "
            f"@trellis.skeleton.register_reader({point.name!r}) to its function"
        )


def _home(read: Read) -> str:
    return f"{read.__module__}.{read.__qualname__}"
