"""Where built kernels are kept: a folder that only its user may write."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import stat
import tempfile
from pathlib import Path


def folder() -> Path:
    """``$XDG_CACHE_HOME/trellis``, or one for this process alone where that cannot be trusted.

    Code is loaded from there: a folder that somebody else owns or may write to is not used.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if base and os.path.isabs(base) else Path.home() / ".cache"
    path = home / "trellis"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _private(path) and os.access(path, os.W_OK):
            return path
    except (OSError, RuntimeError):
        pass
    return _temporary()


def _private(path: Path) -> bool:
    if not hasattr(os, "getuid"):
        return True
    found = path.stat()
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@functools.cache
def _temporary() -> Path:
    path = Path(tempfile.mkdtemp(prefix="trellis-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
