"""Relations: how each operation ties the places of its operands to the places of its result.

Importing this package registers them all.
"""

from __future__ import annotations

from . import contraction, convolution, elementwise, movement
from .recurrent import Recurrent
from .relation import Barrier, Relation, relation_of

__all__ = [
    "Barrier",
    "Recurrent",
    "Relation",
    "contraction",
    "convolution",
    "elementwise",
    "movement",
    "relation_of",
]
