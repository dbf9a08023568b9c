"""Rules of the tracer: one small function per operation. Importing this package registers them."""

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
