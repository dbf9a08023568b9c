"""The kinds of step that a trellis consists of, and the windows of convolutions and pools.

Every operation of a model is written as a few of these steps. A step says how units of its inputs
lead to units of its output. It does not say which algebra is computed (see `trellis.paths`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# An intermediate value of a traced model is a signal, a weight, or a constant (a plain tensor).


@dataclass(frozen=True, eq=False)
class Signal:
    """Stand for a tensor of units: activations that the input may reach.

    ``blocked`` marks units that are −∞ for every input (attention masks); a softmax turns them
    into zeros. ``example`` is the concrete value of an integer signal, used where it acts as
    structure (an index, a mask) and not as data. ``bent``: a function that may be a curve was
    applied since the step ``id``, so sums known of that step no longer hold.
    """

    id: int
    shape: tuple[int, ...]
    blocked: Tensor | None = None
    example: Tensor | None = None
    bent: bool = False

    @property
    def ndim(self) -> int:
        return len(self.shape)


def bent(value: Any) -> Any:
    """The same signal behind a function that may be a curve; anything else as it is."""
    return replace(value, bent=True) if isinstance(value, Signal) else value


@dataclass(frozen=True, eq=False)
class Weight:
    """Stand for entries of one or more parameters, arranged in a shape.

    As long as only views are taken, ``carrier`` is a meta tensor: its size, stride and offset say
    which entry of parameter ``name`` is where. After other operations (concatenation, indexing) it
    is an int64 tensor of global positions, ``offset of the parameter + flat index``; −1 marks a
    place without a connection.
    """

    name: str | None
    carrier: Tensor
    offsets: dict[str, int] = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.carrier.shape)

    @property
    def is_view(self) -> bool:
        return self.carrier.is_meta

    def positions(self) -> Tensor:
        """Return the global positions in this shape, int64."""
        if not self.is_view:
            return self.carrier
        assert self.name is not None
        view = self.carrier
        span = view.untyped_storage().nbytes() // view.element_size()
        flat = torch.arange(span) + self.offsets[self.name]
        return flat.as_strided(view.shape, view.stride(), int(view.storage_offset()))

    def moved(self, move: Callable[[Tensor], Tensor]) -> Weight:
        """Apply a data movement: on the view if it stays one, else on the positions."""
        if self.is_view:
            try:
                out = move(self.carrier)
            except (NotImplementedError, RuntimeError):
                out = None
            storage = self.carrier.untyped_storage()._cdata
            if out is not None and out.is_meta and out.untyped_storage()._cdata == storage:
                return Weight(self.name, out, self.offsets)
        return Weight(None, move(self.positions()), self.offsets)

    def absent_where(self, zero: Tensor) -> Weight:
        """Return the same entries, without a connection where ``zero`` (broadcast) is true."""
        if not bool(zero.any()):
            shape = torch.broadcast_shapes(self.shape, zero.shape)
            return self.moved(lambda t: t.expand(shape))
        positions = torch.where(zero.cpu(), -1, self.positions())
        return Weight(None, positions, self.offsets)


Value = Signal | Weight | Tensor


def leaves(values: Any) -> Iterator[Any]:
    """Yield everything inside nested lists, tuples and dicts."""
    if isinstance(values, list | tuple):
        for value in values:
            yield from leaves(value)
    elif isinstance(values, dict):
        yield from leaves(list(values.values()))
    else:
        yield values


def replaced(values: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to every leaf and keep the nesting."""
    if isinstance(values, list | tuple):
        return [replaced(v, change) for v in values]
    if isinstance(values, dict):
        return {k: replaced(v, change) for k, v in values.items()}
    return change(values)


@dataclass(frozen=True, eq=False)
class Step:
    out: Signal

    @property
    def operands(self) -> list[Signal]:
        """The signals it reads."""
        found: list[Signal] = []
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name != "out":
                found += [
                    v
                    for v in (value if isinstance(value, tuple) else (value,))
                    if isinstance(v, Signal)
                ]
        return found


@dataclass(frozen=True, eq=False)
class Source(Step):
    """Begin a signal.

    With ``depends`` it is an input of the model. Otherwise it is a constant that is not zero where
    ``nonzero`` (bool, broadcastable) is true, and that differs along the dimensions ``varies``.
    ``lifts`` marks the constant 1 that multiplies a parameter used as a signal, so that paths may
    begin there.
    """

    depends: bool
    nonzero: Tensor
    lifts: bool = False
    varies: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Reshape(Step):
    x: Signal


@dataclass(frozen=True, eq=False)
class Scale(Reshape):
    """Multiply with constants or parameters that are never zero and hold no connections.

    They differ along the dimensions ``varies``.
    """

    varies: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Either(Step):
    """Give two forms of one signal; a trellis uses one of them.

    ``rest`` is exact in what depends on what; None stands for a zero signal. ``x`` is the plain
    path product, for scores.
    """

    x: Signal
    rest: Signal | None


@dataclass(frozen=True, eq=False)
class Permute(Step):
    x: Signal
    dims: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Expand(Step):
    """Broadcast dimensions of size one; the number of dimensions stays."""

    x: Signal


@dataclass(frozen=True, eq=False)
class Gather(Step):
    """Compute ``out[..., p, t, ...] = x[..., index[p, t], ...]`` along ``dim``; nothing where −1.

    ``index`` has one dimension, or two: places and taps (the windows of a convolution).
    ``inverse`` is (size of x along dim, fan): the flat places of ``index`` that read each entry,
    padded with −1. ``window`` says the same without an index if ``dim`` is the last dimension and
    windows slide regularly.
    """

    x: Signal
    dim: int
    index: Tensor
    inverse: Tensor
    window: Window | None = None

    @cached_property
    def inside(self) -> Tensor:
        """True where ``index`` is not −1."""
        return self.index >= 0 if self.window is None else self.window.inside()

    @cached_property
    def reached(self) -> Tensor | None:
        """(1, taps) or (1,): where some place has an index; None if ``index`` is never −1."""
        if self.window is not None:
            return self.window.reached()
        return None if bool(self.inside.all()) else self.inside.any(0, keepdim=True)


@dataclass(frozen=True, eq=False)
class Cat(Step):
    xs: tuple[Signal, ...]
    dim: int


@dataclass(frozen=True, eq=False)
class Join(Step):
    """Add elementwise, or combine otherwise so that each side alone carries a path."""

    xs: tuple[Signal, ...]


@dataclass(frozen=True, eq=False)
class Gate(Step):
    """Multiply two signals elementwise."""

    x: Signal
    y: Signal


@dataclass(frozen=True, eq=False)
class Reduce(Step):
    """Sum, average or take the maximum over ``dims``, which are removed."""

    x: Signal
    dims: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Mix(Step):
    """Let each unit also depend on all others along ``dims`` (softmax, layer norm).

    ``share`` is the weight of each: one divided by their number.
    """

    x: Signal
    dims: tuple[int, ...]
    share: float


@dataclass(frozen=True, eq=False)
class Bias(Step):
    """Add a constant where ``nonzero`` (bool, broadcastable) is true.

    It differs along the dimensions ``varies``.
    """

    x: Signal
    nonzero: Tensor
    varies: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Block(Step):
    """Multiply with a constant that is zero where ``keep`` is false."""

    x: Signal
    keep: Tensor


@dataclass(frozen=True, eq=False)
class Contract(Step):
    """Multiply signal and weight: x (B, M, K), weight (B, N, K), out (B, M, N), summed over K.

    This is the only step that holds connections. B is the batch dimension of both, M counts the
    positions that share the weight, K the tails and N the heads.
    """

    x: Signal
    weight: Weight


@dataclass(frozen=True, eq=False)
class Fixed(Step):
    """Multiply signal and constant (a fixed adjacency), with shapes as in `Contract`.

    It holds no connections. ``matrix`` (B, N, K) is not negative.
    """

    x: Signal
    matrix: Tensor


@dataclass(frozen=True, eq=False)
class Product(Step):
    """Multiply two signals: x (B, M, K), y (B, N, K), out (B, M, N), summed over K."""

    x: Signal
    y: Signal


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
