"""The ``.trellis`` format: a network's tables in one file."""

from __future__ import annotations

from .read import read, read_bytes
from .write import to_bytes, write

__all__ = ["read", "read_bytes", "to_bytes", "write"]
