"""The trellis in a dozen kinds of step.

Every operation of a model is written as a few of these. Each says how units of its inputs lead
to units of its output; none says which algebra runs over them (see :mod:`trellis.paths`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .windows import Window

# What an intermediate value of a traced model is: a signal, a weight, or a constant.
#
# A constant is a plain tensor. The other two are below.


@dataclass(frozen=True, eq=False)
class Signal:
    """A tensor of units: activations that the input may reach.

    ``blocked`` marks units that are −∞ whatever the input is (attention masks); a softmax
    turns them into zeros. ``example`` is the concrete value of an integer signal, used where
    it acts as structure (an index, a mask) rather than as data. ``bent``: a function that may be a
    curve was applied since the step ``id``, so sums known of that step no longer hold.
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
    """Entries of one or more parameters, arranged in some shape.

    While only views were taken, ``carrier`` is a meta tensor whose size, stride and offset say
    which entry of parameter ``name`` stands where. After anything else (concatenation,
    indexing) it is an int64 tensor of global positions: ``offset of the parameter + flat
    index``, and −1 where there is no connection.
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
        """Global positions, in this shape. int64."""
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
        """The same entries, with no connection where ``zero`` (broadcast) is true."""
        if not bool(zero.any()):
            shape = torch.broadcast_shapes(self.shape, zero.shape)
            return self.moved(lambda t: t.expand(shape))
        positions = torch.where(zero.cpu(), -1, self.positions())
        return Weight(None, positions, self.offsets)


Value = Signal | Weight | Tensor


def leaves(values: Any) -> Iterator[Any]:
    """Everything inside nested lists, tuples and dicts."""
    if isinstance(values, list | tuple):
        for value in values:
            yield from leaves(value)
    elif isinstance(values, dict):
        yield from leaves(list(values.values()))
    else:
        yield values


def replaced(values: Any, change: Callable[[Any], Any]) -> Any:
    """The same nesting with every leaf changed."""
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
    """Where signals begin. ``depends``: an input of the model; else a constant that is not
    zero where ``nonzero`` (bool, broadcastable) says so, and differs along the dimensions
    ``varies``. ``lifts``: the constant one that a parameter used as a signal is multiplied with, so
    that paths may begin there."""

    depends: bool
    nonzero: Tensor
    lifts: bool = False
    varies: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Reshape(Step):
    x: Signal


@dataclass(frozen=True, eq=False)
class Scale(Reshape):
    """A product with constants or parameters that are never zero and hold no connections: a wire.
    They differ along the dimensions ``varies``."""

    varies: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Either(Step):
    """One signal, written twice. ``rest`` is exact in what depends on what; it is None for nothing
    at all. ``x`` is the plain path product, for scores. A trellis has one or the other."""

    x: Signal
    rest: Signal | None


@dataclass(frozen=True, eq=False)
class Permute(Step):
    x: Signal
    dims: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Expand(Step):
    """Broadcast dimensions of size one (same number of dimensions)."""

    x: Signal


@dataclass(frozen=True, eq=False)
class Gather(Step):
    """``out[..., p, t, ...] = x[..., index[p, t], ...]`` along ``dim``; nothing where −1.

    ``index`` has one dimension, or two: places and taps (a convolution's windows).
    ``inverse`` is (size of x along dim, fan): the flat places of ``index`` that read each
    entry, padded with −1. ``window`` says the same without an index, where ``dim`` is the last
    and windows slide regularly.
    """

    x: Signal
    dim: int
    index: Tensor
    inverse: Tensor
    window: Window | None = None

    @cached_property
    def inside(self) -> Tensor:
        """Where ``index`` is not −1."""
        return self.index >= 0 if self.window is None else self.window.inside()

    @cached_property
    def reached(self) -> Tensor | None:
        """(1, taps), or (1,): where ``index`` is not −1 in some place; None if it never is."""
        if self.window is not None:
            return self.window.reached()
        return None if bool(self.inside.all()) else self.inside.any(0, keepdim=True)


@dataclass(frozen=True, eq=False)
class Cat(Step):
    xs: tuple[Signal, ...]
    dim: int


@dataclass(frozen=True, eq=False)
class Join(Step):
    """Elementwise sum, or anything else in which either side alone carries a path."""

    xs: tuple[Signal, ...]


@dataclass(frozen=True, eq=False)
class Gate(Step):
    """Elementwise product of two signals."""

    x: Signal
    y: Signal


@dataclass(frozen=True, eq=False)
class Reduce(Step):
    """Sum, mean, maximum over ``dims``, which disappear."""

    x: Signal
    dims: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Mix(Step):
    """Each unit also feels all others along ``dims`` (softmax, layer norm), by ``share``: one
    over how many there are."""

    x: Signal
    dims: tuple[int, ...]
    share: float


@dataclass(frozen=True, eq=False)
class Bias(Step):
    """Something constant is added where ``nonzero`` (bool, broadcastable) says so. It differs
    along the dimensions ``varies``."""

    x: Signal
    nonzero: Tensor
    varies: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Block(Step):
    """A product with a constant that is zero where ``keep`` is false."""

    x: Signal
    keep: Tensor


@dataclass(frozen=True, eq=False)
class Contract(Step):
    """Signal times weight: x (B, M, K), weight (B, N, K), out (B, M, N), summed over K.

    The only step that holds connections. B: what both share; M: positions that share the
    weight; K and N: tails and heads.
    """

    x: Signal
    weight: Weight


@dataclass(frozen=True, eq=False)
class Fixed(Step):
    """Signal times constant (a fixed adjacency), shaped as in `Contract`. Holds no connections:
    wires of strength ``matrix``, (B, N, K), not negative."""

    x: Signal
    matrix: Tensor


@dataclass(frozen=True, eq=False)
class Product(Step):
    """Signal times signal: x (B, M, K), y (B, N, K), out (B, M, N), summed over K."""

    x: Signal
    y: Signal
