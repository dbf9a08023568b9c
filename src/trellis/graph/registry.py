"""The registry of rules: which function writes which operation as steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch

from ..errors import TrellisError

Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)
RULES: dict[str, Rule] = {}
MOVES: set[str] = set()  # operations that only move data; of a weight, they move the positions
STRAIGHT: set[str] = set()  # linear in each signal, or written so that `Sums` can follow
LOOKUPS: set[str] = set()  # operations that read integer inputs as tokens, not as structure
KEEPS: set[str] = set()  # elementwise functions that map zero to zero; positions stay


def key(op: Any) -> str:
    """Return the name of an operation without its overload, such as ``aten::add``.

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
            f"rule: expected an operation, got {op!r:.80}; pass one such as "
            "torch.ops.my_library.my_op"
        )
    return str(name)


def rule(*ops: Any) -> Callable[[R], R]:
    """Teach the tracer one or more operations.

    Use it as a decorator on a function ``(build, *args, **kwargs)``. The function gets a builder
    and the arguments of the operation: activations are signals, parameters are weights, everything
    else is as in the call. It returns the resulting signal, or a tuple of signals. The builder's
    methods connect signals: ``build.contract`` multiplies with a weight, ``build.join`` adds,
    ``build.reduce`` sums over dimensions. A rule for a known operation replaces the old one.

    Args:
        *ops: Operations, such as ``torch.ops.my_library.my_op``, with or without an overload.

    Returns:
        A decorator that registers the function and returns it unchanged.

    Raises:
        TrellisError: An argument is not an operation.

    Example:
        >>> import trellis
        >>> @torch.library.custom_op("doctest_lib::double", mutates_args=())
        ... def double(x: torch.Tensor) -> torch.Tensor:
        ...     return 2 * x
        >>> @trellis.rule(torch.ops.doctest_lib.double)
        ... def double_rule(build, x):
        ...     return x          # each output unit reads the input unit at the same place
    """

    def register(function: R) -> R:
        for op in ops:
            RULES[key(op)] = function
        return function

    return register


def aten(names: str) -> list[str]:
    """Return the full names of PyTorch's operations, given as one string of bare names."""
    return [f"aten::{name}" for name in names.split()]


def rules_for(names: Iterable[str]) -> Callable[[R], R]:
    """Register a rule by full names; used for PyTorch's own operations."""

    def register(function: R) -> R:
        for name in names:
            RULES[name] = function
        return function

    return register
