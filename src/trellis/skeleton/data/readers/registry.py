"""The registry of readers: which function reads ``fpha:PATH``, ``csv:PATH`` and so on.

The built-in readers and those of users register in the same way, with :func:`register_reader`.
An installed package can offer readers through the entry point group ``trellis.readers``. Such a
package is imported only when a source names its reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ....errors import TrellisError
from ....plugins import Registry
from ..dataset import Skeletons
from .reading import Reading

Read = Callable[[Path, str, Reading], Skeletons]


@dataclass(frozen=True)
class Reader:
    """How one kind of source is read; the first protocol is the default."""

    read: Read
    protocols: tuple[str, ...]
    about: str
    takes_path: bool


READERS: Registry[Reader] = Registry(
    "reader", "trellis.readers", "@trellis.skeleton.register_reader"
)


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
    READERS.check_name(name)
    if isinstance(protocols, str) or not protocols:
        raise TrellisError(f"expected a tuple of protocol names, got {protocols!r}")

    def register(read: Read) -> Read:
        READERS.add(name, Reader(read, tuple(protocols), about, takes_path), read)
        return read

    return register


def known_sources() -> list[str]:
    """Return how a source can be written, one string per reader, by name."""
    plain = {name for name, reader in READERS.entries.items() if not reader.takes_path}
    return [name if name in plain else f"{name}:PATH" for name in READERS.names()]
