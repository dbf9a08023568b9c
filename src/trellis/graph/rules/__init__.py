"""One small rule per operation, by family. Importing this package registers them all."""

from __future__ import annotations

from . import (
    activation,
    arithmetic,
    attention,
    convolution,
    linear,
    norm,
    pool,
    recurrent,
    reduction,
    shape,
)
from . import lookup as graph

__all__ = [
    "activation",
    "arithmetic",
    "attention",
    "convolution",
    "graph",
    "linear",
    "norm",
    "pool",
    "recurrent",
    "reduction",
    "shape",
]
