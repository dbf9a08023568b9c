"""One process a folder."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trellis.errors import TrellisError

LOCK = ".lock"
_TRIES = 100  # where files have no lasting identity, none ever looks like the one there
# A folder may be a stranger's: what a link in it points to is not ours to empty.
_OPENED = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
_BUSY = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the folder ``path``; an error if another process does.

    The system lets go of it when a process ends, however it ends, so that no stale lock is left.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with locked(Path(folder)):
    ...         os.listdir(folder)
    ...     os.listdir(folder)
    ['.lock']
    []
    """
    file = _held(path)
    try:
        with suppress(OSError):  # a full disk: who holds it is a courtesy
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
        yield
    finally:
        _release(file, path / LOCK)


def remove_stale_lock(path: Path) -> None:
    """Remove the file that a process which was killed has left. A folder that is in use, or that
    may not be written to, is left alone."""
    if (path / LOCK).exists():
        with suppress(TrellisError), locked(path):
            pass


def _held(path: Path) -> int:
    """The open lock file of a folder that is ours now."""
    for tries in range(_TRIES):
        try:
            file = os.open(path / LOCK, _OPENED, 0o644)
        except OSError as error:
            raise TrellisError(f"cannot write to {str(path)!r}: {error.strerror}") from error
        try:
            _take(file)
        except OSError as error:
            # File systems that know no locks are some people's only ones: they go without.
            if error.errno in _BUSY:
                holder = os.read(file, 20).decode(errors="replace").strip()
                os.close(file)
                raise TrellisError(
                    f"{str(path)!r} is in use by another process ({holder or 'unknown'}): wait for "
                    "it, or name another folder with --out"
                ) from None
        # Its last holder may have removed it before we held it: nobody else would see ours.
        if _is_there(file, path / LOCK) or tries == _TRIES - 1:
            return file
        os.close(file)
    raise AssertionError("the last try returns")


def _is_there(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _take(file: int) -> None:
        # A byte far behind the text, which others must still be able to read.
        os.lseek(file, 1 << 20, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)

    def _release(file: int, path: Path) -> None:
        os.close(file)
        with suppress(OSError):  # an open file cannot be removed there: a next holder has it
            path.unlink()

else:
    import fcntl

    def _take(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _release(file: int, path: Path) -> None:
        with suppress(OSError):  # while it is held, so that no next holder's file is removed
            path.unlink()
        os.close(file)
