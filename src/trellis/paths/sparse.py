"""Sparse masks: the positions of the few kept connections.

At 99 % sparsity only one entry of a mask in a hundred is True. The positions of the kept
connections take a twelfth of the bytes, and code that needs only these does not read the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..graph.steps import Weight
from ..graph.trellis import Trellis
from .kernels import where

# The kept connections of a weight as a list of edges.


MANY = 32  # with more rows than this, a matrix product is faster than a loop over rows


@dataclass(frozen=True)
class Layout:
    """Describe the memory layout of a weight (B, N, K) that is a whole parameter.

    The parameter is ``batch`` consecutive matrices of ``rows`` by ``columns``. Rows are heads, or
    tails if ``transposed``.
    """

    batch: int
    rows: int
    columns: int
    transposed: bool


def layout(net: Trellis, weight: Weight) -> Layout | None:
    """Return the layout of a weight that is a whole parameter; None for other weights."""
    if not weight.is_view or weight.name is None or int(weight.carrier.storage_offset()):
        return None
    b, n, k = weight.shape
    if b * n * k != math.prod(net.connections[weight.name]):
        return None
    for rows, columns, transposed in ((n, k, False), (k, n, True)):
        strides = (n * k, 1, n) if transposed else (n * k, k, 1)
        actual = zip(weight.carrier.stride(), strides, weight.shape, strict=True)
        if all(size == 1 or have == want for have, want, size in actual):
            return Layout(b, rows, columns, transposed)
    return None


@dataclass(frozen=True, eq=False)
class Edges:
    """List the kept connections of a weight (B, N, K): ``tails`` of B·K and ``heads`` of B·N."""

    shape: tuple[int, int, int]
    tails: Tensor
    heads: Tensor

    @classmethod
    def of(cls, how: Layout, places: Tensor) -> Edges:
        row = torch.div(places, how.columns, rounding_mode="floor")  # of all B · rows
        column = places - row * how.columns
        if how.batch > 1:
            column += torch.div(row, how.rows, rounding_mode="floor") * how.columns
        if how.transposed:
            return cls((how.batch, how.columns, how.rows), row, column)
        return cls((how.batch, how.rows, how.columns), column, row)

    @property
    def empty(self) -> bool:
        return len(self.tails) == 0

    @property
    def mT(self) -> Edges:
        b, n, k = self.shape
        return Edges((b, k, n), self.heads, self.tails)

    def reach(self, x: Tensor) -> Tensor:
        """Map x (B, R, K), bool, to (B, R, N): the heads of edges whose tail is marked.

        >>> edges = Edges((1, 2, 3), torch.tensor([0, 2]), torch.tensor([1, 1]))
        >>> edges.reach(torch.tensor([[[True, False, False], [False, True, False]]]))
        tensor([[[False,  True],
                 [False, False]]])
        """
        b, n, k = self.shape
        rows = x.shape[1]
        if rows > MANY:
            matrix = torch.zeros(b, n, k)
            matrix.view(-1)[self.heads * k + self.tails % k] = 1
            return torch.bmm(x.float(), matrix.mT) > 0
        tails, heads = self.tails.numpy(), self.heads.numpy()
        marked = x.permute(1, 0, 2).reshape(rows, b * k).view(torch.uint8).numpy()
        out = np.zeros((rows, b * n), dtype=np.uint8)
        for one, into in zip(marked, out, strict=True):
            np.maximum.at(into, heads, one[tails])
        return torch.from_numpy(out).view(torch.bool).reshape(rows, b, n).permute(1, 0, 2)

    def ends(self) -> Tensor:
        """Return the heads of all edges, (B, N, 1)."""
        b, n, _ = self.shape
        out = torch.zeros(b * n, dtype=torch.bool)
        out[self.heads] = True
        return out.reshape(b, n, 1)

    def between(self, x: Tensor, g: Tensor) -> Tensor:
        """Mark the edges from a tail in x (B, R, K) to a head in g (B, R, N), for some r."""
        b, n, k = self.shape
        x, g = x.expand(b, -1, k), g.expand(b, -1, n)
        reached, leading = (t.permute(1, 0, 2).reshape(t.shape[1], -1).numpy() for t in (x, g))
        tails, heads = self.tails.numpy(), self.heads.numpy()
        found = np.zeros(len(tails), dtype=bool)
        for r in range(len(reached)):
            found |= reached[r][tails] & leading[r][heads]
        return torch.from_numpy(found)


class Places(Mapping[str, Tensor]):
    """Masks ``{parameter name: bool tensor}`` that are built on access.

    ``places`` holds the flat positions of the kept connections, in ascending order.

    >>> few = Places({"w": (2, 2)}, {"w": torch.tensor([3])})
    >>> few["w"], few.count
    (tensor([[False, False],
            [False,  True]]), 1)
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], places: Mapping[str, Tensor]) -> None:
        self.shapes, self.places = shapes, places
        self._masks: dict[str, Tensor] = {}

    @classmethod
    def of(cls, masks: Mapping[str, Tensor]) -> Places:
        """Convert masks to places."""
        shapes = {name: tuple(mask.shape) for name, mask in masks.items()}
        return cls(shapes, {name: where(mask) for name, mask in masks.items()})

    @property
    def count(self) -> int:
        return sum(len(places) for places in self.places.values())

    @property
    def device(self) -> torch.device:
        return next(iter(self.places.values())).device

    def among(self, masks: Mapping[str, Tensor], marks: Mapping[str, Tensor]) -> Places:
        """Return the places that are in ``masks`` or that are marked in ``marks``."""
        found = {}
        for name, places in self.places.items():
            mine = marks.get(name, torch.zeros(len(places), dtype=torch.bool, device=self.device))
            if name in masks:
                mine = mine | masks[name].reshape(-1)[places]
            found[name] = places if bool(mine.all()) else places[mine]
        return Places(self.shapes, found)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._masks:
            places = self.places[name]
            mask = torch.zeros(self.shapes[name], dtype=torch.bool, device=places.device)
            mask.view(-1)[places] = True
            self._masks[name] = mask
        return self._masks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)
