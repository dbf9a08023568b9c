"""One process a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import TrellisError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the folder ``path``; an error if another process does.

    The system lets go of it when a process ends, however it ends, so that no stale lock is left.
    """
    try:
        file = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise TrellisError(f"cannot write to {str(path)!r}: {error.strerror}") from error
    try:
        try:
            _take(file)
        except OSError:
            holder = os.read(file, 20).decode(errors="replace").strip()
            raise TrellisError(
                f"{str(path)!r} is in use by another process ({holder or 'unknown'}): wait for "
                "it, or name another folder with --out"
            ) from None
        os.ftruncate(file, 0)
        os.write(file, str(os.getpid()).encode())
        yield
    finally:
        os.close(file)


if sys.platform == "win32":
    import msvcrt

    def _take(file: int) -> None:
        # A byte far behind the text, which others must still be able to read.
        os.lseek(file, 1 << 20, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)

else:
    import fcntl

    def _take(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
