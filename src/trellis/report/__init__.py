"""The report: one HTML page that shows what survived, from a run, a model or an audit."""

from __future__ import annotations

from ..pages import page, write_page

__all__ = ["page", "write_page"]
