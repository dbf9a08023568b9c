"""From a model to its trellis: one rule per operation."""

from .registry import rule
from .trellis import Trellis, trace

__all__ = ["Trellis", "rule", "trace"]
