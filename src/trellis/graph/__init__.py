"""From a model to its trellis: one rule per operation."""

from __future__ import annotations

from .inputs import Inputs
from .registry import rule
from .trellis import Trellis, trace

__all__ = ["Inputs", "Trellis", "rule", "trace"]
