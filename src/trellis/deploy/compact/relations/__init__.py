"""Relations: how each operation ties the places of its operands to the places of its result."""

from __future__ import annotations

from . import (
    attention,
    contraction,
    convolution,
    elementwise,
    movement,
    norms,
    pooling,
    recurrent,
    reduction,
)
from .recurrent import Recurrent
from .relation import Barrier, Relation, relation_of

__all__ = [
    "Barrier",
    "Recurrent",
    "Relation",
    "attention",
    "contraction",
    "convolution",
    "elementwise",
    "movement",
    "norms",
    "pooling",
    "recurrent",
    "reduction",
    "relation_of",
]
