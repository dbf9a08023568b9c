"""How operations tie what stays of their operands to what stays of their result, by family."""

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
