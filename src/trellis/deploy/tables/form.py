"""The sparse form of a network: activations, loops, steps and tables, and a numpy interpreter.

The interpreter is the reference for every faster run-time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .int8 import Int8, Int8Loss, interpreted_int8

# Activations: functions of one number, by the codes of the tables and the C kernel.


Values = NDArray[np.floating]


@dataclass(frozen=True)
class Activation:
    """A function's name and up to two parameters."""

    name: str = "none"
    a: float = 0.0
    b: float = 0.0

    @property
    def code(self) -> int:
        return CODES[self.name]

    def __call__(self, x: Values) -> Values:
        """
        >>> Activation("clamp", 0.0, 6.0)(np.array([-1.0, 3.0, 9.0]))
        array([0., 3., 6.])
        """
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            result: Values = _FUNCTIONS[self.name](x, self.a, self.b).astype(x.dtype)
        return result


def _erf(x: Values) -> Values:
    result: Values = np.vectorize(math.erf, otypes=[np.float64])(x)
    return result


def _sigmoid(x: Values) -> Values:
    return 1.0 / (1.0 + np.exp(-x))


def _hard(x: Values) -> Values:
    result: Values = np.clip(x / 6.0 + 0.5, 0.0, 1.0)
    return result


def _gelu_tanh(x: Values) -> Values:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


_FUNCTIONS: dict[str, Callable[[Values, float, float], Values]] = {
    "none": lambda x, a, b: x,
    "relu": lambda x, a, b: np.maximum(x, 0),
    "clamp": lambda x, a, b: np.clip(x, a, b),
    "leaky": lambda x, a, b: np.where(x > 0, x, a * x),
    "sigmoid": lambda x, a, b: _sigmoid(x),
    "tanh": lambda x, a, b: np.tanh(x),
    "gelu": lambda x, a, b: 0.5 * x * (1.0 + _erf(x * math.sqrt(0.5))),
    "gelu_tanh": lambda x, a, b: _gelu_tanh(x),
    "silu": lambda x, a, b: x * _sigmoid(x),
    "hardswish": lambda x, a, b: x * _hard(x),
    "hardsigmoid": lambda x, a, b: _hard(x),
    "exp": lambda x, a, b: np.exp(x),
    "reciprocal": lambda x, a, b: 1.0 / x,
    "rsqrt": lambda x, a, b: 1.0 / np.sqrt(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "abs": lambda x, a, b: np.abs(x),
    "elu": lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0) * b)),
    "softplus": lambda x, a, b: np.logaddexp(a * x, 0) / a,
    "log": lambda x, a, b: np.log(x),
}
CODES = {name: code for code, name in enumerate(_FUNCTIONS)}
NAMES = tuple(_FUNCTIONS)
NONE = Activation()


# Loops: a layer over planes (images, sequences) whose weights are stored once.
#
# A step of the tables names every unit that it reads. A loop names each weight once, and slides it
# over the positions of a plane. Convolutions, pooling, residual sums and linear layers of a CNN
# become loops.


LOOPS = ("conv", "peak", "mean")
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
_LOOPED_AT_ONCE = 1 << 21  # numbers, so that large planes need little memory


@dataclass(frozen=True, eq=False)
class Loop:
    """Planes of ``shape`` (channels, height, width), computed one after another.

    Tap ``(p, ky, kx)`` of position (y, x) reads the address ``sources[p] + ky · reach[0] + kx ·
    reach[1] + y · stride[0] + x · stride[1]``. It is stored as ``(p · window[0] + ky) · window[1] +
    kx``. With ``shared``, all channels have the same taps, of weight one, and channel c reads plane
    c alone.

    ==========  =====================================================================
    kind        value, before ``act``
    ==========  =====================================================================
    ``"conv"``  bias[c] + scale[c] · Σ weights[t] · x[tap t]  (+ x[extras[c] + position])
    ``"peak"``  bias[c] + scale[c] · max x[tap t], shared
    ``"mean"``  bias[c] + scale[c] · Σ over the window, shared; it has no taps
    ==========  =====================================================================

    Position (y, x) of channel c lies at ``out[0] + c · out[1] + y · out[2] + x · out[3]``. Where
    ``border`` is (rows, gap, height, width), zeros surround each plane of that height and width:
    ``gap`` numbers between its rows, and ``rows`` rows between planes. Convolutions read them as
    padding.
    """

    kind: str
    act: Activation
    shape: tuple[int, int, int]
    out: tuple[int, int, int, int]
    stride: tuple[int, int]
    window: tuple[int, int]
    reach: tuple[int, int]
    sources: Ints
    shared: bool
    fan: Ints  # (channels,), or (1,) if shared
    taps: Ints  # (Σ fan,), ascending within a channel
    weights: NDArray[Any]  # (Σ fan,) float32, float16 or int8; empty if shared
    scale: NDArray[Any]  # (channels,) float32; int16 in arithmetic of 8 bits
    bias: NDArray[Any]  # (channels,) float32; int32 likewise
    extras: Ints  # (channels,), −1 for none; empty if no channel has one
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    name: str = ""

    @property
    def positions(self) -> int:
        return self.shape[1] * self.shape[2]

    @property
    def uses(self) -> int:
        """Number of multiplications; additions and comparisons of pooling count alike."""
        if self.kind == "mean":
            return self.shape[0] * self.positions * self.window[0] * self.window[1]
        return int(self.fan.sum()) * self.positions * (self.shape[0] if self.shared else 1)

    def places(self) -> Ints:
        """Return the address of each position of the first plane, (positions,)."""
        _, height, width = self.shape
        rows = np.arange(height)[:, None] * self.out[2] + np.arange(width) * self.out[3]
        return rows.reshape(-1) + self.out[0]

    def positions_read(self) -> Ints:
        """Return how far each position reads from the first, (positions,)."""
        _, height, width = self.shape
        rows = np.arange(height)[:, None] * self.stride[0] + np.arange(width) * self.stride[1]
        return rows.reshape(-1)

    def window_read(self) -> Ints:
        """Return how far each entry of the window reads from the first, (entries,)."""
        kh, kw = self.window
        reach = np.arange(kh)[:, None] * self.reach[0] + np.arange(kw) * self.reach[1]
        return reach.reshape(-1)

    def tap_addresses(self, channel: int) -> Ints:
        """Return what the taps of a channel read for its first position."""
        entries = self.window[0] * self.window[1]
        if self.kind == "mean":
            return self.window_read() + int(self.sources[channel])
        if self.shared:
            return self.window_read()[self.taps] + int(self.sources[channel])
        taps = self.taps[self.spans(channel)]
        return self.sources[taps // entries] + self.window_read()[taps % entries]

    def spans(self, channel: int) -> slice:
        """Return where the taps of a channel lie."""
        if self.shared:
            return slice(0, len(self.taps))
        ends = np.cumsum(self.fan)
        return slice(int(ends[channel] - self.fan[channel]), int(ends[channel]))

    def cleared(self) -> Ints:
        """Return the addresses of the zeros around the planes."""
        rows, gap, height, width = self.border
        if rows == 0 and gap == 0:
            return np.zeros(0, np.int64)
        pitch = width + gap
        one = np.zeros((height + rows, pitch), bool)
        one[:height, :width] = True
        zeros = np.flatnonzero(~one.reshape(-1))
        planes = (np.arange(self.shape[0])[:, None] * self.out[1] + zeros).reshape(-1)
        before = np.arange(-(rows * pitch + gap), 0)
        return np.concatenate([before, planes]) + self.out[0]

    def group_of_term(self) -> Ints:
        """Return the channel of each tap; 0 if shared."""
        return np.repeat(np.arange(len(self.fan)), self.fan)

    def not_finite(self) -> str | None:
        """Return the name of an array that is not finite in float32, or None."""
        for name in ("bias", "scale", "weights"):
            if not np.isfinite(getattr(self, name).astype(np.float32)).all():
                return name
        if len(self.weights):
            with np.errstate(over="ignore"):
                scaled = self.weights.astype(np.float32) * self.scale[self.group_of_term()]
            if not np.isfinite(scaled).all():
                return "scaled weight"
        return None


def advance_loop(loop: Loop, memory: Floats) -> None:
    """Compute one loop on memory (size, batch), in single precision."""
    positions, places = loop.positions_read(), loop.places()
    for channel in range(loop.shape[0]):
        taps = loop.tap_addresses(channel)
        weights = np.ones(len(taps), np.float32)
        if not loop.shared:
            weights = loop.weights[loop.spans(channel)].astype(np.float32)
        total = np.zeros((len(positions), memory.shape[1]), np.float32)
        if loop.kind == "peak":
            total = memory[taps[:, None] + positions].max(axis=0)
        most = max(_LOOPED_AT_ONCE // max(total.size, 1), 1)
        for some in range(0, 0 if loop.kind == "peak" else len(taps), most):
            read = memory[taps[some : some + most, None] + positions]
            if loop.shared:
                total += read.sum(axis=0)
            else:
                total += np.einsum("tpb,t->pb", read, weights[some : some + most])
        result = total * loop.scale[channel] + loop.bias[channel]
        at = places + channel * loop.out[1]
        if len(loop.extras) and loop.extras[channel] >= 0:
            result += memory[at - (channel * loop.out[1] + loop.out[0]) + loop.extras[channel]]
        memory[at] = loop.act(result)
    memory[loop.cleared()] = 0


# Steps and tables, and the reference interpreter in numpy.


KINDS = ("sum", "max", "dot")
VALUES = ("fp32", "fp16", "int8")


@dataclass(frozen=True, eq=False)
class Step:
    """Groups of rows that are computed together; none reads what another of them writes.

    Group g has ``fan[g]`` terms and ``count[g]`` instances. Instance n of it computes, of memory
    x, ``act(bias[g] + scale[g] · Σ weights[t] · x[terms[t] + offsets[n]])`` and writes it to
    ``x[outs[n]]``. A dot multiplies by ``x[others[t] + offsets[n]]`` too; a max takes the largest
    term and has no weights. A step that ``adds`` adds what ``x[outs[n]]`` was to the sum.
    """

    kind: str
    act: Activation
    fan: NDArray[np.int64]  # (groups,), ascending
    count: NDArray[np.int64]  # (groups,)
    bias: NDArray[Any]  # (groups,) float32; int32 in arithmetic of 8 bits
    scale: NDArray[Any]  # (groups,) float32, 1 unless weights are int8; int16 likewise
    terms: NDArray[np.int64]  # (Σ fan,)
    others: NDArray[np.int64]  # (Σ fan,) of a dot, else empty
    weights: NDArray[Any]  # (Σ fan,) float32, float16 or int8; empty of a max
    offsets: NDArray[np.int64]  # (Σ count,)
    outs: NDArray[np.int64]  # (Σ count,)
    adds: bool = False

    @property
    def uses(self) -> int:
        """Number of multiplications."""
        return int((self.fan * self.count).sum())

    @property
    def bands(self) -> list[tuple[int, int, int]]:
        """Runs of groups with the same fan and count: (fan, count, number of groups)."""
        alike = zip(self.fan.tolist(), self.count.tolist(), strict=True)
        return [(*both, sum(1 for _ in some)) for both, some in groupby(alike)]

    def pieces(self, most: int) -> Iterator[tuple[slice, NDArray[np.int64], NDArray[np.int64]]]:
        """Instances of equal fan, with about ``most`` terms at a time: which they are, the group
        of each, and where their terms lie in the tables, (instances, fan)."""
        group = np.repeat(np.arange(len(self.fan)), self.count)
        firsts = np.cumsum(self.fan) - self.fan
        bounds = np.flatnonzero(np.diff(self.fan[group])) + 1
        for begin, end in zip([0, *bounds], [*bounds, len(group)], strict=True):
            width = int(self.fan[group[begin]])
            step = max(most // max(width, 1), 1)
            for first in range(int(begin), int(end), step):
                some = slice(first, min(first + step, int(end)))
                yield some, group[some], firsts[group[some]][:, None] + np.arange(width)

    def not_finite(self) -> str | None:
        """Return the name of an array that is not finite in float32, or None."""
        for name in ("bias", "scale", "weights"):
            if not np.isfinite(getattr(self, name)).all():
                return name
        if len(self.weights):
            with np.errstate(over="ignore"):
                scaled = self.weights.astype(np.float32) * self.scale[self.group_of_term()]
            if not np.isfinite(scaled).all():
                return "scaled weight"
        return None

    def group_of_term(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.fan)), self.fan)


@dataclass(frozen=True, eq=False)
class Tables:
    """A network as steps over one memory of ``size`` numbers, the inputs at its beginning."""

    inputs: tuple[tuple[int, ...], ...]  # shapes, the batch aside
    outputs: tuple[tuple[int, ...], ...]
    size: int
    steps: tuple[Step | Loop, ...]
    results: NDArray[np.int64]  # where the outputs lie at the end
    values: str = "fp32"
    notes: dict[str, Any] = field(default_factory=dict)
    int8: Int8 | None = None  # the arithmetic is of 8 bits; else of single precision
    choices: tuple[Any, ...] = ()  # how each layer over planes is stored, and why; not in files
    loss: Int8Loss | None = None  # what arithmetic of 8 bits lost on calibration inputs; likewise

    @property
    def input_units(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.inputs)

    @property
    def output_units(self) -> int:
        return len(self.results)

    @property
    def weights(self) -> int:
        """Number of stored weights."""
        return sum(len(step.weights) for step in self.steps)

    @property
    def loops(self) -> list[Loop]:
        return [step for step in self.steps if isinstance(step, Loop)]

    @property
    def uses(self) -> int:
        return sum(step.uses for step in self.steps)

    @property
    def units(self) -> int:
        """Number of computed units."""
        return sum(
            step.shape[0] * step.positions if isinstance(step, Loop) else len(step.outs)
            for step in self.steps
        )


# Tables evaluated in numpy, step by step: the reference for every faster run-time.


_AT_ONCE = 1 << 22  # numbers, so that large tables need little memory


def interpreted(tables: Tables, x: Floats) -> Floats:
    """Evaluate tables, (batch, inputs) to (batch, outputs), in their own arithmetic."""
    if tables.int8 is not None:
        return interpreted_int8(tables, tables.int8, x)
    memory = np.zeros((tables.size, len(x)), np.float32)
    memory[: tables.input_units] = x.reshape(len(x), -1).T
    for step in tables.steps:
        advance(step, memory)
    return np.ascontiguousarray(memory[tables.results].T)


def advance(step: Step | Loop, memory: Floats) -> None:
    """Compute one step on memory (size, batch)."""
    if isinstance(step, Loop):
        advance_loop(step, memory)
        return
    batch = memory.shape[1]
    results = np.empty((len(step.outs), batch), np.float32)
    for some, group, term in step.pieces(_AT_ONCE // max(batch, 1)):
        offsets = step.offsets[some][:, None]
        read = memory[step.terms[term] + offsets]  # (instances, terms, batch)
        if step.kind == "max":
            results[some] = read.max(axis=1)
            continue
        if step.kind == "dot":
            read *= memory[step.others[term] + offsets]
        weights = step.weights[term].astype(np.float32)
        total = np.einsum("ntb,nt->nb", read, weights) * step.scale[group][:, None]
        results[some] = total + step.bias[group][:, None]
    if step.adds:
        results += memory[step.outs]
    memory[step.outs] = step.act(results)
