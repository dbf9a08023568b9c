"""Compaction: the same function, fewer units."""

from .compact import compact
from .module import Compacted
from .report import Report, Size, Stay

__all__ = ["Compacted", "Report", "Size", "Stay", "compact"]
