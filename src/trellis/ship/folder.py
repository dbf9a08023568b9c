"""A folder to export to: made if need be, and gone again if nothing could be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import TrellisError


@contextmanager
def made(folder: str | os.PathLike[str], what: str) -> Iterator[Path]:
    """The folder; what fails within leaves no empty one behind. ``what`` is for messages.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with made(Path(place, "new", "device"), "C") as folder:
    ...         folder.is_dir()
    True
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise TrellisError(f"cannot write {what} to {str(path)!r}: it is a file; name a folder")
    new = [part for part in (path, *path.parents) if not part.exists()]  # innermost first
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # perhaps halfway down
            raise TrellisError(f"cannot make the folder {str(path)!r}: {error.strerror}") from None
        yield path
    except BaseException:
        for part in new:
            with suppress(OSError):  # somebody put something there
                part.rmdir()
        raise
