"""One small rule per operation, by family. Importing this package registers them all."""

from __future__ import annotations

from . import (
    convolution,
    elementwise,
    linear,
    lookup,
    norm,
    recurrent,
    reduction,
    shape,
)

__all__ = [
    "convolution",
    "elementwise",
    "linear",
    "lookup",
    "norm",
    "recurrent",
    "reduction",
    "shape",
]
