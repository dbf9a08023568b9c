"""Arithmetic in 8 bits: the definition, in numpy, that every target equals to the bit.

Every unit is a byte q, 0 to 255, that stands for the number ``scale · (q − zero)``. Scale and zero
are the same for all units of a tensor: an input, or what one step makes. Weights are int8, −127 to
127, with one scale per group or channel. A step computes, in integers of 32 bits,

    sum = bias + Σ weight · q
    q = clip((((sum >> before) · multiplier + beside · q_extra + offset) >> after), low, high)
    q = table[q]                                          where the step has a table

- ``>>`` rounds down. Rounding to nearest is in ``bias`` and ``offset``, which hold half of what is
  shifted out. All zeros (of what is read, of the extra and of the result) are in them as well.
- ``bias`` and ``multiplier`` (16 bits) are those of the group or channel; the rest is the step's.
  A channel without an extra has the byte ``absent`` in its place.
- A maximum takes the largest q in place of the sum; a mean has weights of one.
- ReLU and clamping are ``low`` and ``high``. Any other activation is ``table``, of 256 bytes.
- Around planes lies the byte ``zero``, which stands for the number zero.

Nothing overflows: |sum| < 2³⁰, |sum >> before| ≤ 2¹⁴, after ≤ 20, 0 ≤ beside ≤ 2²⁰ and
|offset| ≤ 2²⁹. Floats occur only at the ends. An input x becomes q by one multiplication in single
precision, rounded half away from zero; an output is ``scale · (q − zero)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
MOST_SUM = 1 << 30
MOST_SHIFTED = 1 << 14  # of |sum >> before|
LEAST_SCALE = 1e-30  # its inverse is finite
MOST_AFTER = 20
MOST_BESIDE = 1 << 20
MOST_OFFSET = 1 << 29
_LOOPS = ("conv", "peak", "mean")  # kinds of `Loop`; others are those of `Step`
_AT_ONCE = 1 << 21  # numbers, so that large planes need little memory


@dataclass(frozen=True)
class Coding:
    """Which number a byte stands for: ``scale · (q − zero)``."""

    scale: float  # of single precision
    zero: int

    @property
    def twice(self) -> np.float32:
        """What an input is multiplied by, to round it."""
        return np.float32(2.0 / np.float64(self.scale))

    def encoded(self, x: NDArray[np.float32]) -> Bytes:
        """
        >>> Coding(0.5, 10).encoded(np.array([0.0, 0.3, -0.25, 1e9], np.float32))
        array([ 10,  11,   9, 255], dtype=uint8)
        """
        with np.errstate(over="ignore"):
            doubled = np.clip(x * self.twice, np.float32(-1024), np.float32(1024)).astype(np.int32)
        away = np.where(doubled < 0, doubled - 1, doubled + 1)
        rounded = np.where(away < 0, -(-away // 2), away // 2)  # towards zero, as C divides
        made: Bytes = np.clip(rounded + self.zero, 0, 255).astype(np.uint8)
        return made

    def decoded(self, q: Bytes) -> NDArray[np.float32]:
        """
        >>> Coding(0.5, 10).decoded(np.array([10, 11, 9], np.uint8))
        array([ 0. ,  0.5, -0.5], dtype=float32)
        """
        whole: NDArray[np.float32] = (q.astype(np.int32) - self.zero).astype(np.float32)
        return whole * np.float32(self.scale)


@dataclass(frozen=True, eq=False)
class Rescale:
    """How a step's sums become bytes; see the module for the formula."""

    before: int
    after: int
    beside: int
    absent: int
    offset: int
    low: int
    high: int
    zero: int
    table: Bytes | None = None  # (256,)

    def sound(self) -> bool:
        """Whether no number of it can overflow."""
        return (
            0 <= self.before < 31
            and 0 <= self.after <= MOST_AFTER
            and 0 <= self.beside <= MOST_BESIDE
            and abs(self.offset) <= MOST_OFFSET
            and 0 <= self.low <= self.high <= 255
            and 0 <= self.zero <= 255
            and 0 <= self.absent <= 255
            and (self.table is None or self.table.shape == (256,))
        )

    def __call__(self, sums: NDArray[Any], multiplier: NDArray[Any], extra: Any) -> Bytes:
        """Turn sums into bytes; ``multiplier`` and ``extra`` broadcast to them."""
        scaled = (sums.astype(np.int64) >> self.before) * multiplier.astype(np.int64)
        scaled = scaled + self.beside * np.asarray(extra, np.int64) + self.offset
        made: Bytes = np.clip(scaled >> self.after, self.low, self.high).astype(np.uint8)
        return made if self.table is None else self.table[made]


@dataclass(frozen=True, eq=False)
class Int8:
    """What tables in 8 bits have beside their steps, whose ``bias`` is int32 and ``scale`` int16.

    Attributes:
        steps: How sums become bytes, for each step.
        inputs: The coding of each input.
        outputs: The coding of each output.
    """

    steps: tuple[Rescale, ...]
    inputs: tuple[Coding, ...]
    outputs: tuple[Coding, ...]


@dataclass(frozen=True)
class Int8Loss:
    """How far outputs in 8 bits are from those in single precision, on calibration inputs.

    Attributes:
        samples: Number of inputs.
        same: For how many of them the largest output is the same one.
        largest: Largest deviation of an output, as a fraction of the largest output.
        typical: Root mean square of the deviations, as a fraction of that of the outputs.
    """

    samples: int
    same: int
    largest: float
    typical: float

    def __str__(self) -> str:
        """
        >>> print(Int8Loss(64, 63, 0.02, 0.004))
        int8 arithmetic: the same largest output for 63 of 64 calibration inputs; deviation 0.4 % (root mean square), 2.0 % at most
        """  # noqa: E501  (as it is printed)
        return (
            f"int8 arithmetic: the same largest output for {self.same:,} of {self.samples:,} "
            f"calibration inputs; deviation {self.typical:.1%} (root mean square), "
            f"{self.largest:.1%} at most"
        ).replace("%", " %")


def loss_of(single: NDArray[np.float32], whole: NDArray[np.float32]) -> Int8Loss:
    """Compare outputs (samples, outputs) in single precision and in 8 bits."""
    away = np.abs(whole.astype(np.float64) - single)
    size = max(float(np.abs(single).max(initial=0)), 1e-30)
    square = max(float(np.sqrt((single.astype(np.float64) ** 2).mean())), 1e-30)
    same = int((single.argmax(axis=1) == whole.argmax(axis=1)).sum())
    return Int8Loss(
        len(single), same, float(away.max()) / size, float(np.sqrt((away**2).mean())) / square
    )


def largest_sum(step: Any) -> int:
    """Return a bound of |sum| over the groups of a step."""
    if step.kind in _LOOPS and step.shared:
        count = 1 if step.kind == "peak" else len(step.taps)
        count = step.window[0] * step.window[1] if step.kind == "mean" else count
        weights = np.full(len(step.bias), count, np.int64)
    elif step.kind == "max":
        weights = np.ones(len(step.bias), np.int64)
    else:
        weights = np.zeros(len(step.bias), np.int64)
        np.add.at(weights, step.group_of_term(), np.abs(step.weights.astype(np.int64)))
    return int((255 * weights + np.abs(step.bias.astype(np.int64))).max(initial=0))


def interpreted_int8(tables: Any, form: Int8, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Evaluate tables in 8 bits, (batch, inputs) to (batch, outputs)."""
    memory = np.zeros((tables.size, len(x)), np.uint8)
    given = x.reshape(len(x), -1).T.astype(np.float32)
    begin = 0
    for shape, coding in zip(tables.inputs, form.inputs, strict=True):
        end = begin + int(np.prod(shape))
        memory[begin:end] = coding.encoded(given[begin:end])
        begin = end
    for step, rescale in zip(tables.steps, form.steps, strict=True):
        if step.kind in _LOOPS:
            _advance_loop(step, rescale, memory)
        else:
            _advance(step, rescale, memory)
    made = np.empty((len(tables.results), len(x)), np.float32)
    begin = 0
    for shape, coding in zip(tables.outputs, form.outputs, strict=True):
        end = begin + int(np.prod(shape))
        made[begin:end] = coding.decoded(memory[tables.results[begin:end]])
        begin = end
    return np.ascontiguousarray(made.T)


# Sums are whole numbers below 2³¹, which double precision adds exactly in any order.


def _advance(step: Any, rescale: Rescale, memory: Bytes) -> None:
    batch = memory.shape[1]
    results = np.empty((len(step.outs), batch), np.uint8)
    for some, group, term in step.pieces(_AT_ONCE // max(batch, 1)):
        read = memory[step.terms[term] + step.offsets[some][:, None]]  # (instances, terms, batch)
        if step.kind == "max":
            sums = read.max(axis=1).astype(np.int64)
        else:
            weights = step.weights[term].astype(np.float64)
            sums = np.einsum("ntb,nt->nb", read.astype(np.float64), weights).astype(np.int64)
        sums = sums + step.bias[group].astype(np.int64)[:, None]
        results[some] = rescale(sums, step.scale[group][:, None], rescale.absent)
    memory[step.outs] = results


def _advance_loop(loop: Any, rescale: Rescale, memory: Bytes) -> None:
    positions, places = loop.positions_read(), loop.places()
    for channel in range(loop.shape[0]):
        taps = loop.tap_addresses(channel)
        weights = np.ones(len(taps))
        if not loop.shared:
            weights = loop.weights[loop.spans(channel)].astype(np.float64)
        if loop.kind == "peak":
            sums = memory[taps[:, None] + positions].max(axis=0).astype(np.int64)
        else:
            total = np.zeros((len(positions), memory.shape[1]))
            most = max(_AT_ONCE // max(total.size, 1), 1)
            for some in range(0, len(taps), most):
                read = memory[taps[some : some + most, None] + positions].astype(np.float64)
                total += np.tensordot(weights[some : some + most], read, 1)
            sums = total.astype(np.int64)
        sums = sums + int(loop.bias[channel])
        at = places + channel * loop.out[1]
        extra: Any = rescale.absent
        if len(loop.extras) and loop.extras[channel] >= 0:
            extra = memory[at - (channel * loop.out[1] + loop.out[0]) + loop.extras[channel]]
        memory[at] = rescale(sums, loop.scale[channel], extra)
    memory[loop.cleared()] = rescale.zero
