"""From a model to its trellis: one rule per operation."""

from __future__ import annotations

from .registry import rule
from .trellis import Trellis, trace

__all__ = ["Trellis", "rule", "trace"]
