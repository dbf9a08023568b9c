"""Which rule writes which operation as steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch

from ..errors import TrellisError

Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)
RULES: dict[str, Rule] = {}
MOVES: set[str] = set()  # operations that only move data: on a weight, its positions move
STRAIGHT: set[str] = set()  # linear in each signal, or written so that `Sums` can follow
KEEPS: set[str] = set()  # functions of one entry that map zero to zero: positions stay


def key(op: Any) -> str:
    """``aten::add``: an operation without its overload.

    >>> key(torch.ops.aten.add.Tensor), key(torch.ops.aten.add)
    ('aten::add', 'aten::add')
    """
    if isinstance(op, torch._ops.OpOverload):
        return str(op._schema.name)
    if isinstance(op, torch._ops.OpOverloadPacket):
        return str(op._qualified_op_name)
    name = getattr(op, "__name__", None)
    if name is None:
        raise TrellisError(
            f"rule: {op!r} is no operation. Pass one such as torch.ops.my_library.my_op."
        )
    return str(name)


def rule(*ops: Any) -> Callable[[R], R]:
    """Teach the tracer one or more operations.

    The function receives a builder and the operation's own arguments, in which activations are
    signals and parameters are weights, and returns the resulting signal (or a tuple of them).

    >>> @torch.library.custom_op("doctest_lib::double", mutates_args=())
    ... def double(x: torch.Tensor) -> torch.Tensor:
    ...     return 2 * x
    >>> @rule(torch.ops.doctest_lib.double)
    ... def double_rule(build, x):
    ...     return x          # a wire: each unit leads to itself
    """

    def register(function: R) -> R:
        for op in ops:
            RULES[key(op)] = function
        return function

    return register


def aten(names: str) -> list[str]:
    return [f"aten::{name}" for name in names.split()]


def rules_for(names: Iterable[str]) -> Callable[[R], R]:
    """Register by bare name; used for PyTorch's own operations."""

    def register(function: R) -> R:
        for name in names:
            RULES[name] = function
        return function

    return register
