"""Limits on sizes that files and commands may ask for, checked before memory is allocated."""

from __future__ import annotations

import os
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


def read_limited(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """Read a file of at most ``most`` bytes; raises OSError as `Path.read_bytes` does."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size  # of a pipe it is 0
        content = file.read(most + 1) if size <= most else b""
    check_bytes(max(size, len(content)), str(path), "leave out what is not needed", most)
    return content


def _told(size: int) -> str:
    return f"{size:,}" if size < 1 << 64 else "more than 64 bits can count"
