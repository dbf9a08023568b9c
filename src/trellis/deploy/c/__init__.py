"""The run-time in C: its source, and a model's tables written as C."""

from __future__ import annotations

from .write import CExport, export_c

__all__ = ["CExport", "export_c"]
