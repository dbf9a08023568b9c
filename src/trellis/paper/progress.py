"""How far a run is: what it tells whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """``done`` of ``work`` counts epochs times networks over the whole run, ``before`` of them
    by earlier calls. ``loss`` and ``accuracy`` are means over the networks being trained, None
    while pruning; ``stack`` counts from 1."""

    doing: str
    stack: int
    stacks: int
    loss: float | None
    accuracy: float | None
    done: int
    before: int
    work: int


Watch = Callable[[Progress], None]
