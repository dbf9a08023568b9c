"""The inner loops: passes over large weights in pieces that stay in cache.

On a CPU, allocating a tensor as large as a weight takes several times as long as reading the
weight. So these loops allocate none: they process a weight in pieces, through one small buffer. A
GPU processes a whole batch at once, unless the batch is too large. Weights are (N, K) matrices,
contiguous along one of their two dimensions.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..graph.steps import Weight
from ..graph.trellis import Trellis

# The size of a step depends on the device. A CPU processes large weights in pieces that stay in its
# cache. On a GPU, launching a step takes as long as processing a million elements. So a GPU gets
# few large steps, cut only if memory requires it. Values are rarely copied from a GPU, because a
# copy waits for all steps before it. Both devices multiply and compare the same numbers, so both
# keep the same connections.


CPU = torch.device("cpu")
LARGE = 1 << 26  # elements of a step on a GPU
TAKES_ALL = 1 << 24  # up to this many elements, a GPU processes all; a CPU would select first

_pretended = ContextVar("pretended", default=False)


def is_cpu(where: Tensor | torch.device) -> bool:
    """Return whether to work in a CPU's small pieces, for a tensor or a device."""
    cpu = where.is_cpu if isinstance(where, Tensor) else where.type == "cpu"
    return cpu and not _pretended.get()


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """Make a CPU work in a GPU's steps inside this context, to compare them and to count them.

    >>> with as_on_gpu():
    ...     is_cpu(torch.zeros(1))
    False
    >>> is_cpu(torch.zeros(1))
    True
    """
    before = _pretended.set(True)
    try:
        yield
    finally:
        _pretended.reset(before)


CHUNK = 1 << 17  # elements of a working buffer for each thread, if they take four bytes each
THREADS = 8  # more threads only wait for memory
MEMORY = threading.local()
# Numpy alone finds the true entries fastest if there are fewer than SHORT booleans, or if at least
# one in DENSE is true.
SHORT = 1 << 12
DENSE = 10


def pieces(w: Tensor) -> Iterator[slice]:
    """Cut (rows, columns) into slices of rows, of about 4 CHUNK bytes for each thread.

    On a GPU, a slice has about LARGE elements.
    """
    threads = min(torch.get_num_threads(), THREADS)
    size = 4 * CHUNK // w.element_size() * threads if is_cpu(w) else LARGE
    step = max(size // max(w.shape[1], 1), 1)
    for a in range(0, w.shape[0], step):
        yield slice(a, min(a + step, w.shape[0]))


def scratch(like: Tensor, slot: int = 0, dtype: torch.dtype | None = None) -> Tensor:
    """Return uninitialized working memory in the shape of ``like``.

    It is valid until this thread asks for the same slot again. It is reused, because allocating
    memory takes longer than the work that is done in it.
    """
    dtype = dtype or like.dtype
    if not is_cpu(like) or like.numel() > 4 * CHUNK * THREADS:
        return torch.empty(like.shape, dtype=dtype, device=like.device)
    kept: dict[str, Tensor] = MEMORY.__dict__  # of this thread
    key, size = f"{slot} {dtype}", like.numel()
    if key not in kept or kept[key].numel() < size:
        kept[key] = torch.empty(size, dtype=dtype)
    return kept[key][:size].view(like.shape)


def at_once(rows: int, w: Tensor) -> bool:
    """Return whether ``rows`` rows are multiplied with a weight in one step."""
    return rows * w.numel() <= (CHUNK if is_cpu(w) else LARGE)


def by_columns(w: Tensor) -> bool:
    """Return whether to work on the transpose, because rows are closer in memory than columns."""
    return w.stride(0) < w.stride(1) and w.shape[0] > 1


def as_bytes(x: Tensor) -> Tensor:
    """View booleans as bytes: the maximum of bytes is ten times as fast as `any`."""
    return x.view(torch.uint8) if x.dtype == torch.bool else x


def as_ordered(x: Tensor) -> Tensor:
    """View non-negative numbers as integers, which compare faster and in the same order.

    The bits of non-negative floats, read as integers, have the same order as the floats.
    """
    if x.dtype == torch.bool:
        return x.view(torch.uint8)
    return x.view(torch.int32) if x.dtype == torch.float32 else x


def count(mask: Tensor) -> int:
    """Count true entries; on a CPU, numpy counts several times as fast as torch."""
    if is_cpu(mask) and mask.is_contiguous():
        return int(np.count_nonzero(mask.numpy()))
    return int(torch.count_nonzero(mask))


def count_all(masks: Iterable[Tensor]) -> int:
    """Count the true entries of all masks, with a single copy from a GPU."""
    masks = list(masks)
    if len(masks) < 2 or is_cpu(masks[0]):
        return sum(count(mask) for mask in masks)
    return int(torch.stack([torch.count_nonzero(mask) for mask in masks]).sum())


def max_product(x: Tensor, w: Tensor) -> Tensor:
    """Compute max over k of x[b, r, k] · |w[b, n, k]|: (B, R, K) and (B, N, K) to (B, R, N).

    On booleans, this is the matrix product of the boolean semiring (or, and).
    """
    if at_once(x.shape[1], w):
        product = as_bytes(x)[:, :, None] * as_bytes(w)[:, None]
        product = product if product.dtype == torch.uint8 else product.abs_()
        return product.amax(-1).view(x.dtype)
    out = torch.zeros(w.shape[0], x.shape[1], w.shape[1], dtype=x.dtype, device=x.device)
    for i in range(w.shape[0]):
        _max_product(x[i], w[i], out[i])
    return out


def _max_product(x: Tensor, w: Tensor, out: Tensor) -> None:
    """Compute `max_product` of x (R, K) and w (N, K) into out (R, N)."""
    x, w, out = as_bytes(x.contiguous()), as_bytes(w), as_bytes(out)
    transposed = by_columns(w)
    if transposed:
        w = w.mT  # (K, N)
    several = x.shape[0] > 1 and x.dtype != torch.uint8
    for part in pieces(w):
        piece = w[part]
        product = scratch(piece)
        if several:
            piece = torch.abs(piece, out=scratch(piece, 1))
        for r in range(x.shape[0]):
            torch.mul(piece, x[r, part, None] if transposed else x[r], out=product)
            if product.dtype != torch.uint8 and not several:
                product.abs_()
            # Zero times infinity can give a NaN with a sign bit: view bits of magnitudes only.
            best, into = (product, out[r]) if several else map(as_ordered, (product, out[r]))
            if transposed:
                torch.maximum(into, best.amax(0), out=into)
            else:
                torch.amax(best, 1, out=into[part])


def strongest(w: Tensor) -> Tensor:
    """Compute max over k of |w[b, n, k]|: (B, N, K) to (B, N, 1)."""
    if not is_cpu(w) and at_once(1, w):
        return (as_bytes(w) if w.dtype == torch.bool else w.abs()).amax(-1, True).view(w.dtype)
    out = torch.zeros(w.shape[0], w.shape[1], 1, dtype=w.dtype, device=w.device)
    for i in range(w.shape[0]):
        matrix, row = as_bytes(w[i]), as_bytes(out[i])
        transposed = by_columns(matrix)
        matrix = matrix.mT if transposed else matrix
        for part in pieces(matrix):
            piece = matrix[part]
            if row.dtype != torch.uint8:
                piece = torch.abs(piece, out=scratch(piece))
            best = piece.amax(0 if transposed else 1)
            if transposed:
                torch.maximum(row[:, 0], best, out=row[:, 0])
            else:
                row[part, 0] = best
    return out


def through_each(x: Tensor, g: Tensor, w: Tensor, target: Tensor, join: bool) -> None:
    """Apply `through` to each matrix of a batch; small matrices in one step."""
    small = w.numel() * w.element_size() <= 4 * CHUNK and x.shape[1] == 1 and not join
    if not (small if is_cpu(w) else at_once(x.shape[1], w)):
        for i in range(w.shape[0]):
            through(x[i], g[i], w[i], target[i], join)
        return
    x, g, w, target = (as_bytes(t) for t in (x, g, w, target))
    found = torch.empty_like(target) if join else target
    if x.shape[1] == 1:
        first, then = (g.mT, x) if by_columns(w[0]) else (x, g.mT)  # rounds like `through`
        torch.mul(w, first, out=found).mul_(then)
    else:
        torch.mul(w, (g[:, :, :, None] * x[:, :, None]).amax(1), out=found)
    if found.dtype != torch.uint8:
        found.abs_()
    if join:
        torch.maximum(target, found, out=target)


def through(x: Tensor, g: Tensor, w: Tensor, target: Tensor, join: bool) -> None:
    """Set target[n, k] to max over r of x[r, k] · g[r, n] · |w[n, k]|, in place.

    With ``join``, take the maximum with the old value of the target. Shapes: x (R, K), g (R, N),
    w and target (N, K) with equal strides. On booleans, max is or and · is and.
    """
    x, g, w, target = (as_bytes(t) for t in (x, g, w, target))
    if by_columns(w):
        x, g, w, target = g, x, w.mT, target.mT
    for part in pieces(w):
        if join:
            found = _through(x, g[:, part], w[part], scratch(w[part], 1))
            torch.maximum(target[part], found, out=target[part])
        else:
            _through(x, g[:, part], w[part], target[part])


def _through(x: Tensor, g: Tensor, w: Tensor, out: Tensor) -> Tensor:
    """Compute `through` for one piece of the weight."""
    if x.shape[0] == 1:
        torch.mul(w, x[0], out=out).mul_(g[0, :, None])
    elif not is_cpu(w) and at_once(x.shape[0], w):
        torch.mul(w, (g[:, :, None] * x[:, None]).amax(0), out=out)
    else:
        best = torch.mul(g[0, :, None], x[0], out=scratch(w))
        for r in range(1, x.shape[0]):
            torch.maximum(best, torch.mul(g[r, :, None], x[r], out=out), out=best)
        torch.mul(w, best, out=out)
    return out if out.dtype == torch.uint8 else out.abs_()


def reaching(
    w: Tensor, factors: list[tuple[Tensor, Tensor]], floor: float, rows: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Find entries of w (N, K) whose score is at least ``floor``: flat positions and scores.

    The score of w[n, k] is the maximum of x[r, k] · g[r, n] · |w[n, k]| over r and over all pairs
    x (R, K), g (R, N) in ``factors``. Only ``rows`` (ascending; None means all) are searched.
    """
    places: list[Tensor] = []
    values: list[Tensor] = []
    columns = w.shape[1]
    for part in pieces(w if rows is None else rows[:, None].expand(-1, columns)):
        select = part if rows is None else rows[part]
        piece = w[select]
        best: Tensor | None = None
        for place, (x, g) in enumerate(factors):
            found = _through(x, g[:, select], piece, scratch(piece, 2 if place else 1))
            best = found if best is None else torch.maximum(best, found, out=best)
        assert best is not None
        found = where(at_least(best, floor))
        values.append(best.view(-1)[found])
        if rows is None:
            places.append(found + part.start * columns)
        else:
            row = torch.div(found, columns, rounding_mode="floor")
            places.append(found + (rows[part][row] - row) * columns)
    return torch.cat(places), torch.cat(values)


def at_least(values: Tensor, floor: float) -> Tensor:
    """Return the mask of ``values`` ≥ ``floor``, valid until the next call.

    On a CPU, numpy compares several times as fast as torch.
    """
    if not is_cpu(values):
        return values >= floor
    found = scratch(values, 0, torch.bool)
    np.greater_equal(values.numpy(), np.float32(floor), out=found.numpy())
    return found


def where(mask: Tensor) -> Tensor:
    """Return flat positions of true entries, ascending; on a CPU, numpy finds them faster."""
    if not is_cpu(mask):
        return torch.nonzero(mask.reshape(-1))[:, 0]
    flat = mask.reshape(-1).contiguous().numpy()
    # Numpy is slow if a few per cent of single bytes are true. Words of eight bytes are faster,
    # because most words are zero and can be skipped.
    if len(flat) < SHORT or DENSE * np.count_nonzero(flat) > len(flat):
        return torch.from_numpy(np.flatnonzero(flat))
    whole = len(flat) & ~7
    words = flat[:whole].view(np.uint64)
    some = np.flatnonzero(words != 0)
    within = np.flatnonzero(words[some].view(np.bool_))
    places = 8 * some[within >> 3] + (within & 7)
    rest = np.flatnonzero(flat[whole:]) + whole
    return torch.from_numpy(np.concatenate([places, rest]) if len(rest) else places)


# The kept connections of a weight as a list of edges.

MANY = 32  # with more rows than this, a matrix product is faster than a loop over rows


@dataclass(frozen=True)
class MatrixLayout:
    """Describe the memory layout of a weight (B, N, K) that is a whole parameter.

    The parameter is ``batch`` consecutive matrices of ``rows`` by ``columns``. Rows are heads, or
    tails if ``transposed``.
    """

    batch: int
    rows: int
    columns: int
    transposed: bool


def matrix_layout(net: Trellis, weight: Weight) -> MatrixLayout | None:
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
            return MatrixLayout(b, rows, columns, transposed)
    return None


@dataclass(frozen=True, eq=False)
class Edges:
    """List the kept connections of a weight (B, N, K): ``tails`` of B·K and ``heads`` of B·N."""

    shape: tuple[int, int, int]
    tails: Tensor
    heads: Tensor

    @classmethod
    def of(cls, how: MatrixLayout, places: Tensor) -> Edges:
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
