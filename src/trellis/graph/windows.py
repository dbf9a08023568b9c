"""Windows of a convolution or a pooling, as an index (places, taps), −1 for padding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# A window that slides over a grid: the regular case of a gather, without an index.
#
# Reading windows through strides, and writing them back by slices, is several times faster than
# going through an index, and gives the same.


SLICES = 64  # taps up to which slices, one for each, are faster than strides within windows
KNOWN = 256  # kinds of window that are remembered; the layers of a network share a few


@dataclass(frozen=True)
class Window:
    """Sizes of the grid and, per dimension, how many places, taps, and how they lie."""

    size: tuple[int, ...]
    places: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def extent(self) -> list[int]:
        """How far windows reach, padding in front included; at least the grid itself."""
        return [
            max((p - 1) * t + d * (k - 1) + 1, b + s)
            for p, t, d, k, b, s in zip(
                self.places, self.stride, self.dilation, self.kernel, self.padding, self.size,
                strict=True,
            )
        ]  # fmt: skip

    def inside(self) -> Tensor:
        """(∏ places, ∏ kernel): which taps of which windows lie on the grid.

        >>> Window((3,), (2,), (3,), (2,), (1,), (1,)).inside()
        tensor([[False,  True,  True],
                [ True,  True, False]])
        """
        found = torch.ones(1, 1, dtype=torch.bool)
        for lies in _inside(self):
            found = found[:, None, :, None] & lies[:, None]
            found = found.reshape(found.shape[0] * found.shape[1], -1)
        return found

    def reached(self) -> Tensor | None:
        """(1, ∏ kernel): which taps lie on the grid in some window; None if all do in all.

        >>> Window((2,), (2,), (5,), (1,), (2,), (1,)).reached()
        tensor([[False,  True,  True,  True, False]])
        """
        return _reached(self)

    def read(self, x: Tensor) -> Tensor:
        """(..., ∏ size) to (..., ∏ places, ∏ kernel), zero where a window hangs over.

        >>> one = Window((3,), (2,), (3,), (2,), (1,), (1,))
        >>> one.read(torch.tensor([1, 2, 3]))
        tensor([[0, 1, 2],
                [2, 3, 0]])
        """
        lead = x.shape[:-1]
        x = x.reshape(*lead, *self.size)
        pads: list[int] = []
        for before, size, extent in zip(self.padding, self.size, self.extent, strict=True):
            pads = [before, extent - before - size, *pads]
        x = functional.pad(x, pads)
        if math.prod(self.kernel) <= SLICES:
            slices: list[tuple[Any, ...]] = [(..., *self._seen(tap)) for tap in self._taps()]
            taps = [x[where] for where in slices]
            return torch.stack(taps, -1).reshape(*lead, -1, len(taps))
        x = x.contiguous()
        steps = x.stride()[len(lead) :]
        across = [s * t for s, t in zip(steps, self.stride, strict=True)]
        within = [s * d for s, d in zip(steps, self.dilation, strict=True)]
        shape = (*lead, *self.places, *self.kernel)
        view = x.as_strided(shape, (*x.stride()[: len(lead)], *across, *within))
        return view.reshape(*lead, math.prod(self.places), math.prod(self.kernel))

    def write(self, g: Tensor) -> Tensor:
        """The transpose, joined by maximum: (..., ∏ places, ∏ kernel) to (..., ∏ size).

        >>> one = Window((3,), (2,), (3,), (2,), (1,), (1,))
        >>> one.write(torch.tensor([[0, 1, 2], [5, 3, 0]]))
        tensor([1, 5, 3])
        """
        lead = g.shape[:-2]
        out = torch.zeros(*lead, *self.extent, dtype=g.dtype, device=g.device)
        for tap, offsets in enumerate(self._taps()):
            where: tuple[Any, ...] = (..., *self._seen(offsets))
            part = out[where]
            torch.maximum(part, g[..., tap].reshape(*lead, *self.places), out=part)
        grid = (slice(b, b + s) for b, s in zip(self.padding, self.size, strict=True))
        inner: tuple[Any, ...] = (..., *grid)
        return out[inner].reshape(*lead, math.prod(self.size))

    def _taps(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*(range(k) for k in self.kernel))

    def _seen(self, offsets: Sequence[int]) -> list[slice]:
        """Where one tap of all windows lies."""
        return [
            slice(o * d, o * d + (p - 1) * t + 1, t)
            for o, d, p, t in zip(offsets, self.dilation, self.places, self.stride, strict=True)
        ]


def _inside(window: Window) -> list[Tensor]:
    """For each dimension, (places, taps): which taps lie on the grid."""
    return [
        (lies >= 0) & (lies < size)
        for size, places, taps, stride, padding, dilation in zip(
            window.size, window.places, window.kernel, window.stride, window.padding,
            window.dilation, strict=True,
        )
        for lies in [torch.arange(-padding, places * stride - padding, stride)[:, None]
                     + torch.arange(taps) * dilation]
    ]  # fmt: skip


@lru_cache(KNOWN)
def _reached(window: Window) -> Tensor | None:
    """See `Window.reached`."""
    inside = _inside(window)
    if all(bool(lies.all()) for lies in inside):
        return None
    found = torch.ones(1, 1, dtype=torch.bool)
    for lies in inside:
        found = (found[:, :, None] & lies.any(0)).reshape(1, -1)
    return found


def pair(value: int | Sequence[int], n: int) -> list[int]:
    """One number, or one per dimension, as one per dimension.

    >>> pair(2, 3), pair([1], 2), pair([], 2)
    ([2, 2, 2], [1, 1], [])
    """
    if isinstance(value, int):
        return [value] * n
    values = [int(v) for v in value]
    return values * n if len(values) == 1 else values


def grid(per_dim: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Combine per-dimension indices (places_d, taps_d) into (∏ places, ∏ taps), row-major.

    >>> grid([torch.tensor([[0], [1]]), torch.tensor([[0, -1]])], [2, 3])
    tensor([[ 0, -1],
            [ 3, -1]])
    """
    n = len(per_dim)
    flat = torch.zeros([1] * (2 * n), dtype=torch.int64)
    valid = torch.ones([1] * (2 * n), dtype=torch.bool)
    for d, index in enumerate(per_dim):
        shape = [1] * (2 * n)
        shape[d], shape[n + d] = index.shape
        part = index.reshape(shape)
        flat = flat * sizes[d] + part.clamp(min=0)
        valid = valid & (part >= 0)
    places = math.prod(index.shape[0] for index in per_dim)
    full = [index.shape[0] for index in per_dim] + [index.shape[1] for index in per_dim]
    return torch.where(valid, flat, -1).expand(full).reshape(places, -1)


def sliding(size: int, out: int, kernel: int, stride: int, padding: int, dilation: int) -> Tensor:
    """Index (out, kernel) of a window sliding along one dimension.

    >>> sliding(3, 2, kernel=3, stride=2, padding=1, dilation=1)
    tensor([[-1,  0,  1],
            [ 1,  2, -1]])
    """
    index = torch.arange(out)[:, None] * stride - padding + torch.arange(kernel) * dilation
    return torch.where((index >= 0) & (index < size), index, -1)


def from_pattern(pattern: Tensor) -> Tensor:
    """The columns that are true in each row of (places, size), padded with −1."""
    fan = max(int(pattern.sum(1).max()), 1)
    rows = [torch.nonzero(row)[:, 0].tolist() for row in pattern]
    return torch.tensor([row + [-1] * (fan - len(row)) for row in rows])


def adaptive(size: int, out: int) -> Tensor:
    """Windows of adaptive pooling along one dimension.

    >>> adaptive(5, 2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    spans = [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]
    fan = max(b - a for a, b in spans)
    return torch.tensor([[*range(a, b)] + [-1] * (fan - (b - a)) for a, b in spans])
