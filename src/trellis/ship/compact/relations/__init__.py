"""How operations tie what stays of their operands to what stays of their result, by family."""

from . import attention, contraction, convolution, elementwise, movement, norms, pooling, reduction
from .relation import Barrier, Relation, relation_of

__all__ = [
    "Barrier",
    "Relation",
    "attention",
    "contraction",
    "convolution",
    "elementwise",
    "movement",
    "norms",
    "pooling",
    "reduction",
    "relation_of",
]
