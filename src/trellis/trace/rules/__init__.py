"""One small rule per operation, by family. Importing this package registers them all."""

from . import (
    activation,
    arithmetic,
    attention,
    convolution,
    graph,
    linear,
    norm,
    pool,
    recurrent,
    reduction,
    shape,
)

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
