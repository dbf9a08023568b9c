"""Limits on sizes that files and commands may ask for, checked before memory is allocated."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from .errors import TrellisError

# Largest size in memory of one dataset, or of the weights of one new network, in bytes.
LARGEST = 4 << 30
# Largest text file (JSON, CSV) in bytes; as Python objects it takes up to twenty times as much.
LARGEST_TEXT = LARGEST >> 4

# Largest value of each number that decides how long a command runs or how much memory it takes.
COUNTS = {
    "batch": 10_000_000,
    "blocks": 1_000,
    "chunks": 10_000,
    "epochs": 100_000_000,
    "filters": 100_000,
    "heads": 10_000,
    "prune_epochs": 100_000_000,
    "prune_every": 100_000_000,
    "seeds": 10_000,
    "stack": 10_000,
    "tune_epochs": 100_000_000,
    "workers": 1_000,
}


def check_count(name: str, value: Any) -> None:
    """Raise if a count is not a whole number from 1 to its limit.

    >>> check_count("seeds", 5)
    >>> check_count("seeds", 1_000_000_000)
    Traceback (most recent call last):
    trellis.errors.TrellisError: seeds=1000000000: expected at most 10,000; give a smaller number
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TrellisError(f"{name}={value!r} is not a whole number from 1 up")
    if value > COUNTS[name]:
        shown = value if value < 1 << 64 else "more than 64 bits"
        raise TrellisError(
            f"{name}={shown}: expected at most {COUNTS[name]:,}; give a smaller number"
        )


def check_bytes(size: int, what: str, do: str, most: int = LARGEST) -> None:
    """Raise if ``what`` would take more than ``most`` bytes; ``do`` says what to do."""
    if size > most:
        raise TrellisError(f"{what}: expected at most {most:,} bytes, got {_told(size)}; {do}")


def read_limited(
    path: Path, most: int = LARGEST_TEXT, do: str = "", name: str | None = None
) -> bytes:
    """Read a regular file of at most ``most`` bytes. A pipe or a device could block forever.

    Args:
        path: The file.
        most: Largest size in bytes.
        do: What to do about a file that cannot be read, for messages.
        name: The file's name in messages (default: its path, quoted).

    Raises:
        FileNotFoundError: The file does not exist.
        TrellisError: It is not a regular file, is too large or cannot be read.
    """
    name, then = name or repr(str(path)), f"; {do}" if do else ""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
            raise TrellisError(f"{name}: expected a file, got {what}{then}")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(most + 1) if size <= most else b""
    except (FileNotFoundError, TrellisError):
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise TrellisError(f"{name} cannot be read: {reason}{then}") from error
    check_bytes(max(size, len(content)), name, do or "leave out what is not needed", most)
    return content


def _told(size: int) -> str:
    return f"{size:,}" if size < 1 << 64 else "more than 64 bits can count"
