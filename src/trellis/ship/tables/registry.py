"""Which function writes which operation as units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Lowering = Callable[..., Any]
L = TypeVar("L", bound=Lowering)
LOWERINGS: dict[str, Lowering] = {}


def lowers(names: str) -> Callable[[L], L]:
    """Register for PyTorch's operations of these bare names.

    The function receives the network under construction and the operation's own arguments, in
    which activations are signals and everything else is what it was.
    """

    def register(function: L) -> L:
        for name in names.split():
            LOWERINGS[f"aten::{name}"] = function
        return function

    return register
