"""The ``.trellis`` format: a network's tables in one file."""

from __future__ import annotations

from .encoding import to_bytes, write
from .read import read, read_bytes

__all__ = ["read", "read_bytes", "to_bytes", "write"]
