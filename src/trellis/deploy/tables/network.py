"""A network written out unit by unit: what each unit reads, and with what weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import TrellisError
from .activation import NONE, Activation

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
