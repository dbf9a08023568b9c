"""Where built kernels are kept: a folder that only its user may write."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import stat
import tempfile
from pathlib import Path

from ...errors import TrellisError


def folder() -> Path:
    """``$XDG_CACHE_HOME/trellis``, or one for this process alone where that cannot be trusted.

    Code is loaded from there: a folder that somebody else owns or may write to, or may put another
    in the place of, is not used. Without a home folder there is only the one for this process.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        path = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "trellis"
        if path.is_absolute():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if private(path) and _firm(path) and os.access(path, os.W_OK):
                return path
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        pass
    return _temporary()


def private(path: Path) -> bool:
    """Whether it is this user's, and no other user may write to it."""
    if not hasattr(os, "getuid"):
        return True
    found = path.stat()
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _firm(path: Path) -> bool:
    """Whether no folder above lets everybody move it away; a sticky one, as /tmp is, does not."""
    modes = (parent.stat().st_mode for parent in path.resolve().parents)
    return os.name == "nt" or all(not mode & stat.S_IWOTH or mode & stat.S_ISVTX for mode in modes)


@functools.cache
def _temporary() -> Path:
    try:
        path = Path(tempfile.mkdtemp(prefix="trellis-")).absolute()
    except OSError as error:
        raise TrellisError(
            f"there is no folder to build the run-time in ({error.strerror or error}): set "
            "XDG_CACHE_HOME to one that is yours alone"
        ) from None
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
