"""From a model to its trellis: one rule per operation."""

from __future__ import annotations

from .export import rule
from .inputs import Inputs
from .trellis import Trellis, trace

__all__ = ["Inputs", "Trellis", "rule", "trace"]
