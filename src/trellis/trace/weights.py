"""Operations on weights alone: views and moves keep track of which entry stands where."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .registry import KEEPS, MOVES
from .values import Weight, leaves


def on_weights(
    op: Any, name: str, args: Any, kwargs: dict[str, Any], offsets: dict[str, int]
) -> Any:
    """The resulting weight (or list of them); None if positions cannot follow ``op``."""
    first = args[0] if args else None
    alone = not any(isinstance(v, Weight) for v in leaves([args[1:], kwargs]))
    if isinstance(first, Weight) and alone:
        if name in KEEPS:
            return first
        if name in MOVES:
            return _moved(op, first, args[1:], kwargs)
    if name in ("aten::mul", "aten::div") and len(args) == 2:
        return _scaled(name, *args)
    if name in ("aten::cat", "aten::stack") and all(isinstance(w, Weight) for w in leaves(first)):
        parts = [w.positions() for w in leaves(first)]
        return Weight(None, op(parts, *args[1:], **kwargs), offsets)
    if name == "aten::_weight_norm" and isinstance(first, Weight):
        return first
    if name == "aten::embedding" and isinstance(first, Weight) and isinstance(args[1], Tensor):
        return Weight(None, first.positions()[args[1].cpu()], offsets)
    return None


def _scaled(name: str, x: Any, y: Any) -> Weight | None:
    """A weight times a constant: no connection where the constant is zero."""
    weight, other = (x, y) if isinstance(x, Weight) else (y, x)
    if isinstance(other, Weight) or (name == "aten::div" and weight is y):
        return None
    if isinstance(other, int | float):
        return weight if other != 0 else None
    if not isinstance(other, Tensor):
        return None
    zero = other == 0 if name == "aten::mul" else other != other
    found: Weight = weight.absent_where(zero)
    return found


def _moved(op: Any, weight: Weight, rest: Any, kwargs: dict[str, Any]) -> Any:
    probe = op(weight.carrier, *rest, **kwargs)
    if isinstance(probe, Tensor):
        return weight.moved(lambda t: op(t, *rest, **kwargs))
    return [
        weight.moved(lambda t, i=i: op(t, *rest, **kwargs)[i])  # type: ignore[misc]
        for i in range(len(probe))
    ]
