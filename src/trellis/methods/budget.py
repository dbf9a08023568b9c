"""How many connections to keep: exact budgets, and how they are spread over parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from ..errors import TrellisError
from .ranking import Ranking


def kept_share(total: int, sparsity: Any = None, keep: Any = None) -> Fraction:
    """Return the fraction to keep, exactly. `budget` has accepted the arguments.

    >>> kept_share(10, sparsity=0.9), kept_share(10, keep=3)
    (Fraction(1, 10), Fraction(3, 10))
    >>> import numpy as np
    >>> kept_share(1000, sparsity=np.float32(0.99))
    Fraction(1, 100)
    """
    if sparsity is None:
        return Fraction(int(keep), total)
    if isinstance(sparsity, Fraction | Decimal):
        return 1 - Fraction(sparsity)
    return 1 - Fraction(as_written(sparsity))


def as_written(number: Any) -> str:
    """Return a number as its user wrote it.

    numpy's float32 0.99 is another number in float64, and 0.99 is meant.

    >>> import numpy as np
    >>> as_written(np.float32(0.99)), as_written(np.float64(0.99)), as_written(1)
    ('0.99', '0.99', '1.0')
    """
    return str(number) if getattr(number, "itemsize", 8) < 8 else repr(float(number))


def budget(total: int, sparsity: Any = None, keep: Any = None) -> int:
    """Return the number of connections to keep: ``keep``, or total × (1 − sparsity) rounded down.

    The arithmetic is exact and decimal.

    Raises:
        TrellisError: If not exactly one of the two is given, or it is out of range.

    >>> budget(10, sparsity=0.9), budget(2139024, sparsity=0.999)
    (1, 2139)
    """
    if (sparsity is None) == (keep is None):
        raise TrellisError(
            "give either sparsity (the fraction removed, such as 0.99) or keep (the number of "
            f"connections); got sparsity={sparsity!r}, keep={keep!r}"
        )
    if keep is not None:
        if isinstance(keep, bool) or not isinstance(keep, Integral):
            raise TrellisError(f"keep={keep!r} is not a whole number of connections")
        count = int(keep)
    else:
        if isinstance(sparsity, bool) or not isinstance(sparsity, Real | Decimal):
            raise TrellisError(f"sparsity={sparsity!r} is not a number")
        if not 0 <= float(sparsity) < 1:
            raise TrellisError(
                f"sparsity={sparsity!r} is out of range: expected the fraction to remove, "
                "0 <= sparsity < 1"
            )
        count = math.floor(total * kept_share(total, sparsity))
    if count < 1:
        raise TrellisError(
            f"a budget of {count} of {total} connections keeps nothing; "
            f"keep at least 1 (sparsity below {1 - 1 / max(total, 1):.6g})"
        )
    if count > total:
        raise TrellisError(f"keep={count} is more than the {total} connections there are")
    return count


def shares(
    fractions: Mapping[str, float | Fraction], sizes: dict[str, int], count: int
) -> dict[str, int]:
    """Split ``count`` over tensors by fractions.

    Each share is rounded down and limited to the tensor's size. The rest goes to the largest
    remainders.

    >>> shares({"a": 0.5, "b": 0.5}, {"a": 3, "b": 4}, 3)
    {'a': 1, 'b': 2}
    """
    exact = {name: fractions[name] * sizes[name] for name in sizes}
    counts = {
        name: min(math.floor(part if isinstance(part, Fraction) else part + 1e-9), sizes[name])
        for name, part in exact.items()
    }
    order = sorted(sizes, key=lambda name: counts[name] - exact[name])
    while (rest := count - sum(counts.values())) != 0:
        sign = 1 if rest > 0 else -1
        changed = False
        for name in order if sign > 0 else reversed(order):
            if rest and 0 <= counts[name] + sign <= sizes[name]:
                counts[name] += sign
                rest -= sign
                changed = True
        if not changed:
            break
    return counts


# Scopes: one ranking for all tensors, the same rate in each, ERK, LAMP, or counts.


SCOPES = ("global", "layer", "erk", "lamp")


def check_scope(scope: Any, sizes: Mapping[str, int]) -> None:
    """Refuse a scope that is unknown, or that does not fit tensors of these sizes."""
    if isinstance(scope, Mapping):
        for name, n in scope.items():
            if name not in sizes:
                raise TrellisError(
                    f"scope names {name!r}, which holds no connections; expected one of "
                    f"{', '.join(sizes)}"
                )
            if isinstance(n, bool) or not isinstance(n, int):
                raise TrellisError(
                    f"scope asks for {n!r} of {name!r}, which is not a whole number of connections"
                )
            if not 0 <= n <= sizes[name]:
                raise TrellisError(
                    f"scope asks for {n!r} of {name!r}; it has {sizes[name]} connections"
                )
    elif scope not in SCOPES:
        raise TrellisError(
            f"scope={scope!r} is unknown: expected one of {', '.join(SCOPES)}, or a mapping of "
            "parameter names to counts"
        )


def counts(
    scope: str | Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
    sizes: Mapping[str, int],
    budget: int,
    share: Fraction,
) -> dict[str, int]:
    """Return the number of connections that each tensor keeps, for scopes that set it.

    ``sizes`` is how many each may keep. For "layer", as in the paper, each keeps ``share`` of its
    connections, rounded down. The rest goes to the largest remainders.
    """
    if isinstance(scope, Mapping):
        return {name: scope.get(name, 0) for name in sizes}
    if scope == "layer":
        whole = all(sizes[name] == math.prod(shapes[name]) for name in sizes)
        rate = share if whole else Fraction(budget, max(sum(sizes.values()), 1))
        return shares({name: rate for name in sizes}, dict(sizes), budget)
    return shares(erk(shapes, sizes, budget), dict(sizes), budget)


def erk(
    shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int], budget: int
) -> dict[str, float]:
    """Return Erdős–Rényi kernel densities: proportional to Σ dims / ∏ dims, at most 1.

    >>> erk({"a": (2, 2), "b": (8, 8)}, {"a": 4, "b": 64}, 20)
    {'a': 1.0, 'b': 0.25}
    """
    raw = {n: sum(shapes[n]) / math.prod(shapes[n]) for n in sizes}
    full: set[str] = set()
    while True:
        left = budget - sum(sizes[n] for n in full)
        mass = sum(raw[n] * sizes[n] for n in sizes if n not in full)
        scale = left / mass if mass else 0.0
        over = {n for n in sizes if n not in full and raw[n] * scale > 1}
        if not over:
            return {n: 1.0 if n in full else max(raw[n] * scale, 0.0) for n in sizes}
        full |= over


def lamp(saliency: Tensor) -> Tensor:
    """Return layer-adaptive magnitudes: s² over the sum of squares of all that are as large."""
    flat = saliency.reshape(-1).cpu().to(torch.float64) ** 2
    order = torch.sort(flat, stable=True)
    tail = torch.flip(torch.cumsum(torch.flip(order.values, [0]), 0), [0])
    score = torch.empty_like(flat)
    score[order.indices] = torch.where(tail > 0, order.values / tail, torch.zeros_like(tail))
    return score.to(torch.float32).reshape(saliency.shape).to(saliency.device)


def scoped(
    scope: str | Mapping[str, int],
    saliency: Mapping[str, Tensor],
    allowed: Mapping[str, Tensor] | None,
    budget: int,
    share: Fraction,
) -> tuple[Ranking, dict[str, int] | None]:
    """Return the ranking of a scope, and the number to keep in each tensor if the scope sets it."""
    if scope == "global":
        return Ranking(saliency, saliency, allowed), None
    if scope == "lamp":
        return Ranking({n: lamp(s) for n, s in saliency.items()}, saliency, allowed), None
    shapes = {n: tuple(s.shape) for n, s in saliency.items()}
    sizes = {
        n: s.numel() if allowed is None else int(torch.count_nonzero(allowed[n]))
        for n, s in saliency.items()
    }
    wanted = counts(scope, shapes, sizes, budget, share)
    scores = {}
    for name, s in saliency.items():
        # Rank within the tensor: a score of 1 or more means "within its count".
        flat = (
            s.reshape(-1)
            if allowed is None
            else torch.where(allowed[name], s, torch.full_like(s, -math.inf)).reshape(-1)
        )
        order = torch.sort(flat, descending=True, stable=True).indices
        rank = torch.empty(flat.numel(), dtype=torch.float64, device=s.device)
        rank[order] = torch.arange(1, flat.numel() + 1, dtype=torch.float64, device=s.device)
        scores[name] = (max(wanted[name], 0.5) / rank).to(torch.float32).reshape(s.shape)
    return Ranking(scores, saliency, allowed), wanted
