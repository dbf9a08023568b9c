"""What each place of a signal reads, through wires alone, from the last contraction behind it.

Between two contractions stand wires only: reshapes, windows, pooling, biases. Composed, they
say for every place of a signal which units of the contraction behind it lead there: none
(padding), one, or several (pooling, sums).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..trace import steps

Units = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Reads:
    """``units`` (*shape of the signal, taps): flat indices of units of ``level``, -1 for none.

    Level 0 is the input, level l the output of the l-th contraction.
    """

    level: int
    units: Units

    @property
    def size(self) -> int:
        return int(np.prod(self.units.shape, dtype=np.int64))


def source(shape: Sequence[int], nonzero: NDArray[np.bool_]) -> Reads:
    """A signal whose places are the units themselves.

    >>> source((2, 2), np.array([[True, False]])).units[..., 0].tolist()
    [[0, -1], [2, -1]]
    """
    units = np.arange(np.prod(shape, dtype=np.int64), dtype=np.int32).reshape(shape)
    return Reads(0, np.where(nonzero, units, np.int32(-1))[..., None])


def output(shape: Sequence[int], level: int) -> Reads:
    """The output of a contraction: every place is a unit."""
    whole = source(shape, np.ones((), bool))
    return Reads(level, whole.units)


def through(step: steps.Step, xs: Sequence[Reads | None]) -> Reads:
    """What ``step.out`` reads, given what its inputs read (None: a constant). Wires only, and
    at least one input is not constant; all others are of the same level."""
    level = next(x.level for x in xs if x is not None)
    if isinstance(step, steps.Cat):
        return Reads(level, _cat(step, xs))
    if isinstance(step, steps.Join):
        parts = [x.units for x in xs if x is not None]
        return Reads(level, parts[0] if len(parts) == 1 else _trim(np.concatenate(parts, -1)))
    assert xs[0] is not None
    x = xs[0].units
    return Reads(level, _one(step, x))


def _one(step: steps.Step, x: Units) -> Units:
    taps = x.shape[-1]
    ndim = x.ndim - 1
    if isinstance(step, steps.Reshape):
        return x.reshape((*step.out.shape, taps))
    if isinstance(step, steps.Permute):
        return x.transpose((*step.dims, ndim))
    if isinstance(step, steps.Expand | steps.Bias):
        return np.broadcast_to(x, (*step.out.shape, taps))
    if isinstance(step, steps.Gather):
        index = step.index.numpy()
        found = np.take(x, np.maximum(index, 0), axis=step.dim)
        inside = (index >= 0).reshape(index.shape + (1,) * (ndim - step.dim))
        return np.where(inside, found, np.int32(-1))
    if isinstance(step, steps.Block):
        keep = np.broadcast_to(step.keep.cpu().numpy(), step.out.shape)
        return np.where(keep[..., None], x, np.int32(-1))
    if isinstance(step, steps.Reduce):
        rest = [d for d in range(ndim) if d not in step.dims]
        return _trim(x.transpose((*rest, *step.dims, ndim)).reshape((*step.out.shape, -1)))
    if isinstance(step, steps.Mix):
        rest = [d for d in range(ndim) if d not in step.dims]
        size = [1 if d in step.dims else x.shape[d] for d in range(ndim)]
        mixed = _trim(x.transpose((*rest, *step.dims, ndim)).reshape((*size, -1)))
        return np.broadcast_to(mixed, (*x.shape[:-1], mixed.shape[-1]))
    assert isinstance(step, steps.Fixed)  # by a constant: wires where it is not zero
    weight = step.matrix.cpu().numpy() != 0  # (B, N, K)
    b, m, k, _ = x.shape
    n = weight.shape[1]
    spread = np.where(weight[:, None, :, :, None], x[:, :, None], np.int32(-1))
    return _trim(spread.reshape(b, m, n, k * taps))


def _cat(step: steps.Cat, xs: Sequence[Reads | None]) -> Units:
    taps = max(x.units.shape[-1] for x in xs if x is not None)
    pieces = []
    for x, signal in zip(xs, step.xs, strict=True):
        piece = np.full((*signal.shape, taps), -1, np.int32)
        if x is not None:
            piece[..., : x.units.shape[-1]] = x.units
        pieces.append(piece)
    return np.concatenate(pieces, step.dim)


def _trim(units: Units) -> Units:
    """Each unit once, the largest first, and no more taps than the fullest place has.

    >>> _trim(np.array([[3, -1, 3], [-1, 5, -1]], dtype=np.int32)).tolist()
    [[3], [5]]
    """
    if units.shape[-1] == 1:
        return units
    units = -np.sort(-units, axis=-1)
    again = units[..., 1:] == units[..., :-1]
    if again[units[..., 1:] >= 0].any():
        units[..., 1:][again] = -1
        units = -np.sort(-units, axis=-1)
    full = int((units >= 0).sum(-1).max(initial=1))
    return np.ascontiguousarray(units[..., : max(full, 1)])
