"""How many connections to keep, exactly as asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

from ..errors import TrellisError


def kept_share(total: int, sparsity: Any = None, keep: Any = None) -> Fraction:
    """The fraction kept, exactly, of arguments that `budget` has accepted.

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
    """A number as somebody wrote it: numpy's single 0.99 is meant as 0.99, and is another number
    in double.

    >>> import numpy as np
    >>> as_written(np.float32(0.99)), as_written(np.float64(0.99)), as_written(1)
    ('0.99', '0.99', '1.0')
    """
    return str(number) if getattr(number, "itemsize", 8) < 8 else repr(float(number))


def budget(total: int, sparsity: Any = None, keep: Any = None) -> int:
    """The number of connections kept: ``keep``, or total × (1 − sparsity) rounded down, in
    exact decimal arithmetic.

    >>> budget(10, sparsity=0.9), budget(2139024, sparsity=0.999)
    (1, 2139)
    """
    if (sparsity is None) == (keep is None):
        raise TrellisError(
            "give either sparsity (the fraction removed, such as 0.99) or keep (how many "
            f"connections stay); got sparsity={sparsity!r}, keep={keep!r}"
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
                f"sparsity={sparsity!r} is out of range: it is the fraction removed, "
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
    """Split ``count`` over tensors by fractions: each floored, none above its size, the rest
    handed out by largest remainder.

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
