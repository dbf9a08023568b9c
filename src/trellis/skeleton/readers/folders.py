"""Finding one's way in folders that people unpacked somewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ...errors import TrellisError
from .text import at, shown

Test = Callable[[Path], bool]


def names(folder: Path) -> list[str]:
    """What is in a folder, sorted, without hidden files and what archivers leave behind."""
    try:
        found = os.listdir(folder)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TrellisError(f"the folder {at(folder)} cannot be read: {reason}") from None
    return sorted(name for name in found if not name.startswith((".", "__MACOSX")))


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, sorted by name; links to folders are followed, once."""
    return [folder / name for name in names(folder) if os.path.isdir(folder / name)]


def find(path: Path, inside: Iterable[str], fits: Test, expected: str) -> Path:
    """The one folder that ``fits``: ``path``, one of ``inside`` it, or the same a level further in.

    People name the folder they unpacked into, the data set's own, or the one above.
    """
    if not os.path.exists(path):
        raise TrellisError(f"there is no folder {at(path)}")
    if not os.path.isdir(path):
        raise TrellisError(f"{at(path)} is a file; {expected} was expected")
    inside, deeper = tuple(inside), subfolders(path)
    for level in (
        [path],
        [path / name for name in inside],
        deeper,
        [folder / name for folder in deeper for name in inside],
    ):
        found = [folder for folder in level if os.path.isdir(folder) and fits(folder)]
        if len(found) > 1:
            both = " and ".join(shown(folder.relative_to(path)) for folder in found[:2])
            raise TrellisError(f"{at(path)} holds both {both}: name the one to read")
        if found:
            return found[0]
    raise TrellisError(f"{at(path)} is not what was expected: {expected}. It holds {_some(path)}")


def _some(folder: Path) -> str:
    found = names(folder)
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return (", ".join(map(shown, found[:5])) + more) or "nothing"


def beside(name: str, *folders: Path) -> Path:
    """The file of that name in the first of ``folders`` that has it."""
    for folder in folders:
        if os.path.lexists(folder / name):
            return folder / name
    places = ", ".join(dict.fromkeys(at(folder) for folder in folders))
    raise TrellisError(f"there is no {name} in {places}")
