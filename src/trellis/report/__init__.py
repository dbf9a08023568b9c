"""The report: one HTML page that shows what survived, from a run, a model or an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..files import replacing
from .page import page

__all__ = ["page", "write_page"]


def write_page(path: Path, content: dict[str, Any]) -> int:
    """Write the page with this content; return its size in bytes."""
    text = page(content).encode("utf-8")
    with replacing(path) as [draft]:
        draft.write_bytes(text)
    return len(text)
