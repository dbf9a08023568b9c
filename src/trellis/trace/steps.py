"""The trellis in a dozen kinds of step.

Every operation of a model is written as a few of these. Each says how units of its inputs lead
to units of its output; none says which algebra runs over them (see :mod:`trellis.paths`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

from torch import Tensor

from .values import Signal, Weight
from .window import Window


@dataclass(frozen=True, eq=False)
class Step:
    out: Signal

    @property
    def operands(self) -> list[Signal]:
        """The signals it reads."""
        found: list[Signal] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "out":
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
