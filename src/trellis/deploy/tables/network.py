"""A network written out before addresses are known: rows of units, and layers over planes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import TrellisError
from .form import NONE, Activation

# The registry of lowerings: which function writes which operation as units.


Lowering = Callable[..., Any]
L = TypeVar("L", bound=Lowering)
LOWERINGS: dict[str, Lowering] = {}


def lowers(names: str) -> Callable[[L], L]:
    """Register a lowering for operations of PyTorch, by bare name.

    The function receives the network under construction and the operation's own arguments, in
    which activations are signals and everything else has its value.
    """

    def register(function: L) -> L:
        for name in names.split():
            LOWERINGS[f"aten::{name}"] = function
        return function

    return register


Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST_TERMS = 50_000_000  # larger tables do not fit where sparse tables are used


@dataclass(frozen=True, eq=False)
class Signal:
    """An activation as unit numbers, in the activation's shape, the batch (of one) included."""

    ids: Tensor  # int64

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.ids.shape)


@dataclass(eq=False)
class RowBlock:
    """Units made by one operation. Unit ``first + i`` is, with j over ``starts[i:i+2]``,

    ==========  ======================================================
    kind        value
    ==========  ======================================================
    ``"sum"``   act(bias[i] + Σ weights[j] · x[reads[j]])
    ``"dot"``   act(bias[i] + Σ weights[j] · x[reads[j]] · x[others[j]])
    ``"max"``   act(max x[reads[j]])
    ==========  ======================================================

    ``shape`` is the grid in which the units lie and ``places`` where in it. ``wiring`` marks
    arithmetic without connections (a norm, a residual sum, an activation), which may be folded
    into the operation before it.
    """

    kind: str
    first: int
    shape: tuple[int, ...]
    starts: Ids  # (rows + 1,)
    reads: Ids  # (terms,)
    weights: Reals  # (terms,)
    bias: Reals  # (rows,)
    act: Activation = NONE
    wiring: bool = False
    others: Ids | None = None  # (terms,), of dots
    places: Ids = field(default_factory=lambda: np.zeros(0, np.int64))  # (rows,)
    adds: bool = False  # to the current values of its units: a later part of a sum

    name: str = ""  # of the module it comes from

    @property
    def rows(self) -> int:
        return len(self.bias)

    @property
    def units(self) -> int:
        """How many units the grid has."""
        return math.prod(self.shape)

    @property
    def fan(self) -> Ids:
        """How many terms each row has."""
        return np.diff(self.starts)

    @property
    def row_of_term(self) -> Ids:
        return np.repeat(np.arange(self.rows), self.fan)


class Network:
    """Collects blocks in order of evaluation; the first units are the inputs."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []  # `RowBlock`, and `PlaneBlock` in a `PlaneNetwork`
        self.units = 0
        self.name = ""  # of the module whose operations are being written
        self.inputs: list[Signal] = []
        self.outputs: list[Signal] = []

    def input(self, shape: tuple[int, ...]) -> Signal:
        if self.blocks:
            raise AssertionError("inputs must come before all blocks")
        ids = torch.arange(self.units, self.units + math.prod(shape)).reshape(shape)
        self.units += math.prod(shape)
        self.inputs.append(Signal(ids))
        return self.inputs[-1]

    @property
    def input_units(self) -> int:
        return sum(math.prod(signal.shape) for signal in self.inputs)

    def sums(
        self, shape: tuple[int, ...], rows: Ids, reads: Ids, weights: Reals,
        bias: Reals | float = 0.0, act: Activation = NONE, wiring: bool = False,
    ) -> Signal:  # fmt: skip
        """Weighted sums: term j adds ``weights[j] · x[reads[j]]`` to unit ``rows[j]`` of shape."""
        return self._add("sum", shape, rows, reads, weights, bias, act, wiring)

    def dots(
        self, shape: tuple[int, ...], rows: Ids, reads: Ids, others: Ids,
        weights: Reals | float = 1.0, bias: float = 0.0, act: Activation = NONE,
    ) -> Signal:  # fmt: skip
        """Add sums of products of two units."""
        full = np.broadcast_to(np.asarray(weights, np.float64), rows.shape)
        return self._add("dot", shape, rows, reads, full, bias, act, False, others)

    def maxima(self, shape: tuple[int, ...], rows: Ids, reads: Ids) -> Signal:
        return self._add("max", shape, rows, reads, np.ones(len(rows)), 0.0, NONE, False)

    def each(
        self, x: Signal, scale: Reals | float = 1.0, shift: Reals | float = 0.0,
        act: Activation = NONE,
    ) -> Signal:  # fmt: skip
        """act(scale · x + shift), unit by unit; scale and shift broadcast to x's shape."""
        every = np.arange(x.ids.numel())
        full = np.broadcast_to(np.asarray(scale, np.float64), x.shape).reshape(-1)
        bias = np.broadcast_to(np.asarray(shift, np.float64), x.shape).reshape(-1)
        kept = full != 0
        return self.sums(
            x.shape, every[kept], flat(x)[kept], full[kept], bias.copy(), act, wiring=True
        )

    def constant(self, value: Tensor) -> Signal:
        """Add constant units, which read nothing."""
        none = np.zeros(0, np.int64)
        bias = value.detach().double().cpu().numpy().reshape(-1).copy()
        return self.sums(tuple(value.shape), none, none, np.zeros(0), bias, wiring=True)

    def _add(
        self, kind: str, shape: tuple[int, ...], rows: Ids, reads: Ids, weights: Reals,
        bias: Reals | float, act: Activation, wiring: bool, others: Ids | None = None,
    ) -> Signal:  # fmt: skip
        if len(rows) > MOST_TERMS:
            raise TrellisError(
                f"expected at most {MOST_TERMS:,} reads in one operation of sparse tables, got "
                f"{len(rows):,}; prune further, or export ONNX (trellis export onnx)"
            )
        n = math.prod(shape)
        order = np.argsort(rows, kind="stable")
        starts = np.searchsorted(rows[order], np.arange(n + 1)).astype(np.int64)
        full = np.asarray(bias, np.float64)
        block = RowBlock(
            kind, self.units, tuple(shape), starts, reads[order].astype(np.int64),
            np.asarray(weights, np.float64)[order],
            np.full(n, float(full)) if full.ndim == 0 else full, act, wiring,
            None if others is None else others[order].astype(np.int64), np.arange(n),
            name=self.name,
        )  # fmt: skip
        if kind == "sum":
            coalesce(block)
        self.blocks.append(block)
        self.units += n
        return Signal(torch.arange(block.first, block.first + n).reshape(shape))


def flat(x: Signal) -> Ids:
    ids: Ids = x.ids.reshape(-1).numpy()
    return ids


def coalesce(block: RowBlock) -> None:
    """Add up the weights of terms that read the same unit into the same row; drop zeros."""
    rows = block.row_of_term
    order = np.lexsort((block.reads, rows))
    rows, reads, weights = rows[order], block.reads[order], block.weights[order]
    if len(rows):
        new = np.r_[True, (rows[1:] != rows[:-1]) | (reads[1:] != reads[:-1])]
        if not new.all():
            at = np.flatnonzero(new)
            weights = np.add.reduceat(weights, at)
            rows, reads = rows[at], reads[at]
        kept = weights != 0
        if not kept.all():
            rows, reads, weights = rows[kept], reads[kept], weights[kept]
    block.reads, block.weights = reads, weights
    block.starts = np.searchsorted(rows, np.arange(block.rows + 1)).astype(np.int64)


# Layers over planes, before addresses are known: how they are made, merged and written out.
#
# A `PlaneBlock` stands beside `RowBlock` in a network under construction. Its units are numbered
# like all others, so that every other operation may read them one by one.


NON_NEGATIVE = ("relu", "sigmoid", "hardsigmoid", "exp", "softplus", "abs")


@dataclass(eq=False)
class PlaneBlock:
    """Planes made by one operation; see `Loop` for ``kind``, ``shared`` and ``window``.

    Position (y, x) reads row ``y · stride[0] + offset[0] + ky · dilation[0]`` of a source plane,
    columns alike; what lies outside is zero. It lies at row ``y · spread[0] + start[0]`` of its own
    grid. Blocks with the same ``first`` fill one grid together (a transposed convolution).
    """

    kind: str
    first: int
    grid: tuple[int, int, int]  # all channels, height, width
    source: Ids  # (planes, height, width): unit numbers
    size: tuple[int, int]  # positions
    window: tuple[int, int]
    taps: Ids  # (planes of the window, or all): flat, ascending within a channel
    starts: Ids  # (channels + 1,) of the taps, or (2,) if shared
    weights: Reals
    shared: bool = False
    stride: tuple[int, int] = (1, 1)
    offset: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    spread: tuple[int, int] = (1, 1)
    start: tuple[int, int] = (0, 0)
    scale: Reals = field(default_factory=lambda: np.zeros(0))
    bias: Reals = field(default_factory=lambda: np.zeros(0))
    act: Activation = NONE
    extra: Ids | None = None  # (channels, *size): units added before act; −1 for none
    wiring: bool = False
    channels: Ids = field(default_factory=lambda: np.zeros(0, np.int64))  # of the grid
    name: str = ""

    def __post_init__(self) -> None:
        count = self.grid[0] if not len(self.channels) else len(self.channels)
        if not len(self.channels):
            self.channels = np.arange(count)
        if not len(self.scale):
            self.scale = np.ones(count)
        if not len(self.bias):
            self.bias = np.zeros(count)

    @property
    def units(self) -> int:
        """How many units the grid has."""
        return math.prod(self.grid)

    def rows_read(self) -> tuple[Ids, Ids]:
        """Return the rows (positions, window) and columns of a source plane that are read."""
        return tuple(
            np.arange(self.size[d])[:, None] * self.stride[d] + self.offset[d]
            + np.arange(self.window[d]) * self.dilation[d]
            for d in (0, 1)
        )  # type: ignore[return-value]  # fmt: skip

    @property
    def outside(self) -> bool:
        """Whether positions read beyond their source: padding."""
        return any(
            bool(at.min() < 0 or at.max() >= size)
            for at, size in zip(self.rows_read(), self.source.shape[1:], strict=True)
        )

    @property
    def plain(self) -> bool:
        """Whether each unit is at most one unit, scaled, shifted, activated: no connections."""
        return (
            self.kind == "conv" and self.shared and self.window == (1, 1)
            and self.spread == (1, 1) and len(self.weights) == 1 and self.weights[0] == 1
        )  # fmt: skip

    @property
    def copies(self) -> bool:
        """Whether each unit is exactly one other unit, or zero."""
        simple = self.plain and self.act == NONE and self.extra is None
        return simple and bool((self.scale == 1).all() and (self.bias == 0).all())

    def unit_numbers(self) -> Ids:
        """Return the unit of each channel and position, (channels, *size)."""
        _, height, width = self.grid
        rows = np.arange(self.size[0]) * self.spread[0] + self.start[0]
        columns = np.arange(self.size[1]) * self.spread[1] + self.start[1]
        plane = rows[:, None] * width + columns
        return self.first + self.channels[:, None, None] * (height * width) + plane

    def grid_numbers(self) -> Ids:
        """Return the units of whole planes, (channels, height, width)."""
        _, height, width = self.grid
        plane = np.arange(height * width).reshape(height, width)
        return self.first + self.channels[:, None, None] * (height * width) + plane

    def fan(self) -> Ids:
        return np.diff(self.starts)

    def reads(self) -> Ids:
        """Return all units of the source planes that a tap reads, and of the extras."""
        parts = [self.source.reshape(-1)]
        if self.extra is not None:
            parts.append(self.extra[self.extra >= 0])
        return np.concatenate(parts)

    def plane_of_tap(self) -> Ids:
        return self.taps // (self.window[0] * self.window[1])


def written_out(block: PlaneBlock) -> RowBlock:
    """Return the same units as rows: each with all that it reads."""
    rows_read, columns_read = block.rows_read()
    _, height, width = block.source.shape
    kh, kw = block.window
    entries = kh * kw
    count = len(block.channels)
    if block.kind == "mean":
        channel, tap = np.repeat(np.arange(count), entries), np.tile(np.arange(entries), count)
        plane, weights = channel, np.ones(len(tap))
    elif block.shared:
        fan = len(block.taps)
        channel, tap = np.repeat(np.arange(count), fan), np.tile(block.taps, count)
        plane = channel
        weights = np.tile(block.weights, count) if block.kind == "conv" else np.ones(len(tap))
    else:
        channel = np.repeat(np.arange(count), block.fan())
        plane, tap = block.taps // entries, block.taps % entries
        weights = block.weights
    y = rows_read.T[tap // kw][:, :, None]  # (taps, height, 1)
    x = columns_read.T[tap % kw][:, None, :]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)  # (taps, height, width)
    y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    reads = block.source[plane[:, None, None], y, x]
    places = (block.unit_numbers() - block.first).reshape(count, *block.size)
    local = np.arange(places.size).reshape(places.shape)
    rows = np.broadcast_to(local[channel], inside.shape)[inside]
    scaled = weights * (block.scale[channel] if block.kind != "peak" else 1.0)
    values = np.broadcast_to(scaled[:, None, None], inside.shape)[inside]
    reads = reads[inside]
    if block.extra is not None:
        real = block.extra >= 0
        rows = np.concatenate([rows, local[real]])
        reads = np.concatenate([reads, block.extra[real]])
        values = np.concatenate([values, np.ones(int(real.sum()))])
    order = np.argsort(rows, kind="stable")
    n = places.size
    starts = np.searchsorted(rows[order], np.arange(n + 1)).astype(np.int64)
    made = RowBlock(
        "max" if block.kind == "peak" else "sum", block.first, (1, *block.grid), starts,
        reads[order], values[order], np.repeat(block.bias, math.prod(block.size)), block.act,
        block.wiring, None, places.reshape(-1),
    )  # fmt: skip
    if made.kind == "sum":
        coalesce(made)
    return made


# How the rules of operations make blocks. Each returns None where planes are not regular, and the
# rule then writes out rows.


class PlaneNetwork(Network):
    """A network under construction whose rules make planes where they can."""

    def each(
        self, x: Signal, scale: Reals | float = 1.0, shift: Reals | float = 0.0,
        act: Activation = NONE,
    ) -> Signal:  # fmt: skip
        made = each_plane(self, x, np.asarray(scale, np.float64), np.asarray(shift), act)
        return super().each(x, scale, shift, act) if made is None else made


def planes_of(x: Signal) -> Ids | None:
    """Return a signal's unit numbers as (channels, height, width), for a batch of one."""
    shape = x.shape
    if not 2 <= len(shape) <= 4 or shape[0] != 1 or 0 in shape:
        return None
    sizes = (*shape[1:], 1, 1)[:3] if len(shape) != 3 else (shape[1], 1, shape[2])
    return x.ids.reshape(sizes).numpy()


def owner_of(net: Network, unit: int) -> PlaneBlock | RowBlock | None:
    """Return the block that makes a unit, or None for an input."""
    if unit < net.input_units:
        return None
    low, high = 0, len(net.blocks)
    while high - low > 1:
        middle = (low + high) // 2
        if net.blocks[middle].first <= unit:
            low = middle
        else:
            high = middle
    found: PlaneBlock | RowBlock = net.blocks[low]
    return found


def full(net: Network, planes: Ids) -> bool:
    """Whether each plane is a whole plane of a `PlaneBlock`."""
    size = planes.shape[1] * planes.shape[2]
    flat = planes.reshape(len(planes), -1)
    if not (flat == flat[:, :1] + np.arange(size)).all():
        return False
    for unit in flat[:, 0]:
        owner = owner_of(net, int(unit))
        if not isinstance(owner, PlaneBlock) or owner.grid[1:] != planes.shape[1:]:
            return False
        if (int(unit) - owner.first) % size:
            return False
    return True


def affine(net: Network, planes: Ids) -> bool:
    """Whether rows and columns of all planes lie at fixed distances, within one block."""
    steps = []
    for axis in (1, 2):
        step = np.diff(planes, axis=axis)
        if step.size and not (step == step.reshape(-1)[0]).all():
            return False
        steps.append(int(step.reshape(-1)[0]) if step.size else 1)
    if min(steps) <= 0:
        return False
    owners = {id(owner_of(net, int(u))): owner_of(net, int(u)) for u in planes[:, 0, 0]}
    if len(owners) != 1 or planes.min() < net.input_units <= planes.max():
        return False
    [owner] = owners.values()
    if owner is None:
        return True
    if planes.max() >= owner.first + owner.units:
        return False
    if isinstance(owner, RowBlock):
        return True
    _, height, width = owner.grid
    at = planes - owner.first
    plane, row, column = at // (height * width), at // width % height, at % width
    return bool(
        (plane == plane[:, :1, :1]).all()
        and (row == row[:, :, :1]).all()
        and (column == column[:, :1, :]).all()
    )


def add_planes(net: Network, block: PlaneBlock, shape: Sequence[int]) -> Signal:
    """Append a block and return its units in the operation's own shape."""
    block.name = net.name
    net.blocks.append(block)
    net.units = block.first + block.units
    return Signal(torch.arange(block.first, net.units).reshape(list(shape)))


def readable(net: Network, planes: Ids, outside: bool) -> Ids:
    """Return planes that a loop can read; copied where padding or order ask for it."""
    if full(net, planes) or (not outside and affine(net, planes)):
        return planes
    if not affine(net, planes):
        same = Signal(torch.from_numpy(np.ascontiguousarray(planes)))
        planes = Network.each(net, same).ids.numpy()
        if not outside:
            return planes
    return copied(net, planes)


def copied(
    net: Network, planes: Ids, before: tuple[int, int] = (0, 0), size: tuple[int, int] | None = None
) -> Ids:
    """Copy planes, with ``before`` rows and columns of zeros before them if asked."""
    grid = (len(planes), *(size or planes.shape[1:]))
    block = PlaneBlock(
        "conv", net.units, grid, planes, grid[1:], (1, 1), np.zeros(1, np.int64),
        np.array([0, 1]), np.ones(1), shared=True, offset=(-before[0], -before[1]), wiring=True,
    )  # fmt: skip
    return add_planes(net, block, grid).ids.numpy()


def each_plane(
    net: Network, x: Signal, scale: Reals, shift: Reals, act: Activation
) -> Signal | None:
    """act(scale · x + shift) by channel, or None where x is not made of whole planes."""
    planes = planes_of(x)
    if planes is None or not full(net, planes):
        return None
    factors = []
    for values in (scale, shift):
        every = np.broadcast_to(values, x.shape).reshape(len(planes), -1)
        if not (every == every[:, :1]).all():
            return None
        factors.append(every[:, 0].copy())
    block = PlaneBlock(
        "conv", net.units, planes.shape, planes, planes.shape[1:], (1, 1), np.zeros(1, np.int64),
        np.array([0, 1]), np.ones(1), shared=True, scale=factors[0], bias=factors[1], act=act,
        wiring=True,
    )  # fmt: skip
    return add_planes(net, block, x.shape)


def sum_of_planes(net: Network, a: Signal, b: Signal) -> Signal | None:
    """a + b of whole planes, or None."""
    left, right = planes_of(a), planes_of(b)
    if left is None or right is None or left.shape != right.shape:
        return None
    if not (full(net, left) and full(net, right)):
        return None
    block = PlaneBlock(
        "conv", net.units, left.shape, left, left.shape[1:], (1, 1), np.zeros(1, np.int64),
        np.array([0, 1]), np.ones(1), shared=True, extra=right, wiring=True,
    )  # fmt: skip
    return add_planes(net, block, a.shape)


def non_negative(net: Network, planes: Ids) -> bool:
    """Whether a padding of zeros cannot change a maximum."""
    for unit in planes[:, 0, 0]:
        owner = owner_of(net, int(unit))
        if owner is None:
            return False
        act = owner.act
        if act.name not in NON_NEGATIVE and not (act.name == "clamp" and act.a >= 0):
            return False
    return True
