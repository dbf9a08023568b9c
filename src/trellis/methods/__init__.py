"""Pruning methods: one class each, registered by name.

`available` lists them. Use a name, ``trellis.prune(..., method="chains", surrogate="global")``, or
an object, ``trellis.prune(..., method=trellis.methods.Chains(surrogate="global"))``. To add one of
your own, derive from `ScoreMethod` or `WalkMethod` and use `trellis.register_method`.
"""

from __future__ import annotations

from .chains import Chains
from .magnitude import Closed, Magnitude, Random
from .method import Method, Problem, ScopedMethod, ScoreMethod, WalkMethod, available
from .phew import Phew
from .synflow import SynFlow
from .viterbi import Viterbi

__all__ = [
    "Chains",
    "Closed",
    "Magnitude",
    "Method",
    "Phew",
    "Problem",
    "Random",
    "ScopedMethod",
    "ScoreMethod",
    "SynFlow",
    "Viterbi",
    "WalkMethod",
    "available",
]


def __dir__() -> list[str]:
    return list(__all__)
