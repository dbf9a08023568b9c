"""Export to C: the source of the run-time, and a model's tables as C."""

from __future__ import annotations

from .write import CExport, export_c

__all__ = ["CExport", "export_c"]
