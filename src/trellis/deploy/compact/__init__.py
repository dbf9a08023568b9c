"""Compaction: the same function, fewer units."""

from __future__ import annotations

from .compact import compact
from .module import Compacted, Report, Size, Stay

__all__ = ["Compacted", "Report", "Size", "Stay", "compact"]
