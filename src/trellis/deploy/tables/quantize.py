"""Numbers in fewer bits: weights stored in 16 or 8 bits, and arithmetic in 8 bits.

For arithmetic in 8 bits, ranges are measured on data. A tensor is an input, or what one step makes.
Tensors that a reader cannot tell apart share one coding: the parts of a concatenation that one
pooling window reads, the outputs of one grid. Otherwise each tensor has its own, and the scale of
what a weight reads is part of the weight before it is rounded.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import TrellisError
from .form import NONE, VALUES, Activation, Loop, Step, Tables, advance, interpreted
from .int8 import (
    LEAST_SCALE,
    MOST_AFTER,
    MOST_BESIDE,
    MOST_SHIFTED,
    MOST_SUM,
    Coding,
    Int8,
    Rescale,
    largest_sum,
    loss_of,
)

# Weights in fewer bits: half precision, or integers with one scale per row.


# Candidates for the code of a row's largest weight. Above 127 it is clipped, which helps the other
# weights; below, the scale, which has few digits, may fit better.
_LARGEST = (*range(96, 128), 135, 145, 160, 180, 210)


def stored(tables: Tables, values: str, data: NDArray[np.float32] | None = None) -> Tables:
    """Return the tables with weights as ``"fp32"``, ``"fp16"`` or ``"int8"``.

    int8 has one scale per group. With ``data``, inputs such as the network will see (samples, …),
    the scale minimises the error of the sums, and the mean error of each group is subtracted from
    its bias. Without ``data``, all terms count alike.
    """
    if values not in VALUES:
        raise TrellisError(f"unknown values={values!r}; known: {', '.join(map(repr, VALUES))}")
    if tables.values != "fp32":
        if tables.values == values:
            return tables
        raise TrellisError(f"the weights are already {tables.values}; start from the model")
    if values == "fp32":
        return tables
    moments = None if data is None or values != "int8" else moments_of(tables, data)
    steps: list[Step | Loop] = []
    for number, step in enumerate(tables.steps):
        if step.kind == "max" or (isinstance(step, Loop) and step.shared):
            steps.append(step)
        elif values == "fp16":
            steps.append(_half(step))
        else:
            steps.append(rounded_weights(step, None if moments is None else moments[number]))
        if steps[-1].not_finite():
            raise TrellisError(
                f"a weight is too large for values={values!r}: its scale is beyond float32. Give "
                "values='fp32', or scale the model down"
            )
    return dataclasses.replace(tables, steps=tuple(steps), values=values)


def _half(step: Step | Loop) -> Step | Loop:
    """Store in half precision, scaled by a power of two if a weight would leave its range."""
    largest = _per_group(step, np.abs(step.weights), np.maximum)
    power = np.minimum(np.ceil(np.log2(np.maximum(largest, 1e-30))), 127)  # float32 has no more
    scale = np.where(largest > 0, 2.0**power, 1.0)
    usual = (largest > 2.0**-6) & (largest < 2.0**15)
    scale = np.where(usual.all(), 1.0, scale).astype(np.float32)
    halves = (step.weights / scale[step.group_of_term()]).astype(np.float16)
    return dataclasses.replace(step, weights=halves, scale=scale)


Moments = tuple[NDArray[np.float64], NDArray[np.float64]]  # of each term: mean, mean square


def rounded_weights(step: Step | Loop, moments: Moments | None) -> Step | Loop:
    group = step.group_of_term()
    weights = step.weights.astype(np.float64)
    largest = _per_group(step, np.abs(weights), np.maximum)
    square = np.ones(len(weights)) if moments is None else moments[1] + 1e-12
    best = np.full(len(step.fan), np.inf)
    scale = np.ones(len(step.fan))
    for most in _LARGEST:
        trial = _short(np.where(largest > 0, largest / most, 1.0))
        error = (weights - _rounded(weights, trial[group]) * trial[group]) ** 2 * square
        total = np.bincount(group, error, minlength=len(scale))
        better = total < best
        best, scale = np.where(better, total, best), np.where(better, trial, scale)
    codes = _rounded(weights, scale[group])
    bias = step.bias
    # A bias takes as much room as four weights: where rows are short and had none, it stays zero.
    worth = np.any(bias) or len(weights) >= 16 * len(bias)
    if moments is not None and step.kind in ("sum", "conv") and worth:
        lost = np.bincount(group, (weights - codes * scale[group]) * moments[0], len(scale))
        bias = (bias + lost).astype(np.float32)
    return dataclasses.replace(
        step, weights=codes.astype(np.int8), scale=scale.astype(np.float32), bias=bias
    )


def _short(scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round scales to the upper half of a float32, as files store them."""
    bits = scale.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def _rounded(weights: NDArray[Any], scale: NDArray[Any]) -> NDArray[Any]:
    codes: NDArray[Any] = np.clip(np.rint(weights / scale), -127, 127)
    return codes


def _per_group(step: Step | Loop, values: NDArray[Any], ufunc: Any) -> NDArray[np.float64]:
    result = np.zeros(len(step.fan))
    ufunc.at(result, step.group_of_term(), values)
    return result


def moments_of(tables: Tables, data: NDArray[np.float32]) -> list[Moments]:
    """Return, per step, the mean and mean square of what each term reads, over samples and
    instances."""
    memory = np.zeros((tables.size, len(data)), np.float32)
    memory[: tables.input_units] = data.reshape(len(data), -1).T
    found: list[Moments] = []
    for step in tables.steps:
        group = step.group_of_term()
        if isinstance(step, Loop):
            found.append(_moments_of_loop(step, memory))
            advance(step, memory)
            continue
        mean, square = memory.mean(axis=1, dtype=np.float64), (memory.astype(float) ** 2).mean(1)
        means, squares = np.zeros(len(group)), np.zeros(len(group))
        for some, _, term in step.pieces(1 << 20):
            at = step.terms[term] + step.offsets[some][:, None]
            np.add.at(means, term, mean[at])
            np.add.at(squares, term, square[at])
        count = step.count[group]
        found.append((means / count, squares / count))
        advance(step, memory)
    return found


def _moments_of_loop(loop: Loop, memory: NDArray[np.float32]) -> Moments:
    means, squares = np.zeros(len(loop.taps)), np.zeros(len(loop.taps))
    if not loop.shared:
        mean, square = memory.mean(axis=1, dtype=np.float64), (memory.astype(float) ** 2).mean(1)
        positions = loop.positions_read()
        for channel in range(loop.shape[0]):
            at = loop.tap_addresses(channel)[:, None] + positions
            means[loop.spans(channel)] = mean[at].mean(axis=1)
            squares[loop.spans(channel)] = square[at].mean(axis=1)
    return means, squares


# Arithmetic in 8 bits.


Ints = NDArray[np.int64]
_COMPARED = 64  # inputs that the loss is measured on
_MEANS = 256  # inputs that means of what weights read are measured on
_SAMPLES = 1 << 15  # numbers kept of each tensor, to choose its range by
_AT_ONCE = 1 << 23  # numbers of memory
_CLIPPED = (1.0, 0.98, 0.95, 0.92, 0.88, 0.84, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5)
_BOUNDS = ("none", "relu", "clamp")  # activations that are bounds of a byte
_MOST_BIAS = 1 << 22


def to_int8(tables: Tables, data: NDArray[np.float32]) -> Tables:
    """Return tables in 8 bits, calibrated on data (samples, inputs); see `int8` for what they mean.

    Raises:
        TrellisError: If a step multiplies two units (attention, gates, norms of computed
            statistics), which 8 bits do not carry.
    """
    if tables.int8 is not None:
        raise TrellisError("the arithmetic is already int8; start from the model")
    if tables.values != "fp32":
        raise TrellisError(f"int8 arithmetic starts from fp32, got values={tables.values!r}")
    for step in tables.steps:
        if isinstance(step, Step) and (step.kind == "dot" or step.adds):
            raise TrellisError(
                "int8 arithmetic has no products of two activations (attention, gates, norms over "
                "units, einsum of two signals); export with arithmetic='fp32'"
            )
    sources = _sources(tables)
    before, after = _samples(tables, data)
    codings = [_coding([after[i] for i in tied]) for tied in sources.tied]
    coding = {tensor: codings[number] for number, tied in enumerate(sources.tied)
              for tensor in tied}  # fmt: skip
    moments = moments_of(tables, data[:_MEANS])
    first = len(tables.inputs)
    steps, rescales = [], []
    for number, step in enumerate(tables.steps):
        made = coding[first + number]
        middle = made if step.act.name in _BOUNDS else _coding([before[first + number]])
        fixed, rescale = _fixed(step, sources.of[number], coding, moments[number], middle, made)
        steps.append(fixed)
        rescales.append(rescale)
    form = Int8(
        tuple(rescales), tuple(coding[i] for i in range(first)),
        tuple(coding[i] for i in sources.outputs),
    )  # fmt: skip
    whole = dataclasses.replace(tables, steps=tuple(steps), values="int8", int8=form)
    some = data[:: max(len(data) // _COMPARED, 1)][:_COMPARED]
    loss = loss_of(interpreted(tables, some), interpreted(whole, some))
    return dataclasses.replace(whole, loss=loss)


# Which tensors are read, and which share a coding.


@dataclasses.dataclass(frozen=True, eq=False)
class _Sources:
    of: list[tuple[Ints, int]]  # of each step: the tensor of each term, and of its extras (or −1)
    tied: list[list[int]]
    outputs: list[int]  # a tensor of each output


def _sources(tables: Tables) -> _Sources:
    first = len(tables.inputs)
    leader = list(range(first + len(tables.steps)))

    def found(tensor: int) -> int:
        while leader[tensor] != tensor:
            tensor = leader[tensor]
        return tensor

    def tie(owners: NDArray[Any]) -> int:
        some = np.unique(owners)
        for other in some[1:]:
            leader[found(int(other))] = found(int(some[0]))
        return int(some[0])

    owner = np.full(tables.size, -1, np.int64)
    sizes = [int(np.prod(shape)) for shape in tables.inputs]
    owner[: sum(sizes)] = np.repeat(np.arange(first), sizes)
    of: list[tuple[Ints, int]] = []
    for number, step in enumerate(tables.steps):
        if isinstance(step, Loop):
            of.append(_of_loop(step, owner, tie))
            if _copies(step):  # bytes then stay what they are
                tie(np.append(of[-1][0], first + number))
            owner[(step.places() + np.arange(step.shape[0])[:, None] * step.out[1]).reshape(-1)] = (
                first + number
            )
            owner[step.cleared()] = first + number
            continue
        firsts = np.cumsum(step.fan) - step.fan
        term = np.full(len(step.terms), -1, np.int64)  # one of the tensors that each term reads
        pieces = [
            (owner[step.terms[at] + step.offsets[some][:, None]],
             firsts[group][:, None] + 0 * at if step.kind == "max" else at)
            for some, group, at in step.pieces(1 << 22)
        ]  # fmt: skip
        for read, place in pieces:
            term[place] = read
        for read, place in pieces:
            pairs = np.stack([term[place].reshape(-1), read.reshape(-1)])
            for pair in np.unique(pairs, axis=1).T:
                tie(pair)
        if step.kind == "max":
            term = np.repeat(term[firsts], step.fan)
        of.append((term, -1))
        owner[step.outs] = first + number
    ends = np.cumsum([int(np.prod(shape)) for shape in tables.outputs])[:-1]
    outputs = [tie(owner[part]) for part in np.split(tables.results, ends)]
    groups: dict[int, list[int]] = {}
    for tensor in range(len(leader)):
        groups.setdefault(found(tensor), []).append(tensor)
    return _Sources(of, list(groups.values()), outputs)


def _copies(loop: Loop) -> bool:
    simple = loop.shared and loop.kind == "conv" and len(loop.taps) == 1 and not len(loop.extras)
    same = simple and loop.act == NONE
    return same and bool((loop.scale == 1).all() and (loop.bias == 0).all())


def _of_loop(loop: Loop, owner: Ints, tie: Any) -> tuple[Ints, int]:
    positions = loop.positions_read()
    if loop.shared:  # one tensor a channel
        tensors = [
            tie(owner[loop.tap_addresses(c)[:, None] + positions]) for c in range(loop.shape[0])
        ]
        term = np.array(tensors, np.int64)
    else:
        entries = loop.window[0] * loop.window[1]
        used, place = np.unique(loop.taps, return_inverse=True)
        at = loop.sources[used // entries] + loop.window_read()[used % entries]
        term = np.array([tie(owner[a + positions]) for a in at], np.int64)[place]
    extra = -1
    if len(loop.extras):
        beside = loop.extras[loop.extras >= 0][:, None] + loop.places() - loop.out[0]
        extra = tie(owner[beside])
    return term, extra


# Ranges, from samples of what the network computes.


def _samples(
    tables: Tables, data: NDArray[np.float32]
) -> tuple[dict[int, list[NDArray[np.float32]]], dict[int, list[NDArray[np.float32]]]]:
    """Return samples of each tensor before its activation and after it."""
    before: dict[int, list[NDArray[np.float32]]] = {}
    after: dict[int, list[NDArray[np.float32]]] = {}
    generator = np.random.default_rng(0)
    many = max(_AT_ONCE // tables.size, 1)
    chunks = [data[i : i + many] for i in range(0, len(data), many)]
    kept = max(_SAMPLES // len(chunks), 256)

    def keep(into: dict[int, list[NDArray[np.float32]]], tensor: int, values: Any) -> None:
        every = values.reshape(-1)
        if not np.isfinite(every).all():
            raise TrellisError("the calibration data make the network overflow; give other data")
        ends = np.array([every.min(), every.max()], np.float32)
        some = every if len(every) <= kept else generator.choice(every, kept)
        into.setdefault(tensor, []).append(np.concatenate([ends, some]))

    for chunk in chunks:
        memory = np.zeros((tables.size, len(chunk)), np.float32)
        memory[: tables.input_units] = chunk.T
        begin = 0
        for tensor, shape in enumerate(tables.inputs):
            end = begin + int(np.prod(shape))
            keep(after, tensor, memory[begin:end])
            begin = end
        for number, step in enumerate(tables.steps, len(tables.inputs)):
            bounded = step.act.name in _BOUNDS
            advance(step if bounded else dataclasses.replace(step, act=NONE), memory)
            at = step.outs if isinstance(step, Step) else (
                step.places() + np.arange(step.shape[0])[:, None] * step.out[1]
            ).reshape(-1)  # fmt: skip
            made = memory[at]
            if not bounded:
                keep(before, number, made)
                made = memory[at] = step.act(made)
            keep(after, number, made)
    return before, after


def _coding(samples: list[list[NDArray[np.float32]]]) -> Coding:
    """Return the coding that loses least of samples; it has a byte for zero."""
    values = np.concatenate([part for parts in samples for part in parts]).astype(np.float64)
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    best, least = Coding(1.0, 0), np.inf
    if low == high:
        return best
    for share in _CLIPPED:
        scale = float(np.float32(max((high - low) * share / 255, 2 * LEAST_SCALE)))
        zero = int(np.clip(np.rint(-low * share / scale), 0, 255))
        kept = (np.clip(np.rint(values / scale) + zero, 0, 255) - zero) * scale
        lost = float(((kept - values) ** 2).sum())
        if lost < least:
            best, least = Coding(scale, zero), lost
    return best


# A step in whole numbers.


def _fixed(
    step: Step | Loop, sources: tuple[Ints, int], coding: dict[int, Coding], moments: Any,
    middle: Coding, made: Coding,
) -> tuple[Step | Loop, Rescale]:  # fmt: skip
    """Return a step in whole numbers: sums in ``middle``, which become ``made``."""
    term, extra = sources
    scale = np.array([coding[int(tensor)].scale for tensor in term])
    zero = np.array([coding[int(tensor)].zero for tensor in term], np.int64)
    groups = len(step.bias)
    zeros: NDArray[np.float64]
    if step.kind == "max" or (isinstance(step, Loop) and step.shared):
        weights = step.weights
        unit, zeros, bias = _alike(step, scale, zero)
    else:
        group = step.group_of_term()
        means, squares = moments
        scaled = dataclasses.replace(step, weights=(step.weights * scale).astype(np.float32))
        scaled = rounded_weights(scaled, (means / scale, squares / scale**2))
        unit, bias = scaled.scale.astype(np.float64), scaled.bias.astype(np.float64)
        empty = step.fan == 0
        unit = np.where(empty, middle.scale / 256, unit)
        coarse = np.maximum(unit, np.abs(bias) / _MOST_BIAS)  # beside a bias that large
        codes = np.rint(scaled.weights * (unit / coarse)[group])
        weights, unit = codes.astype(np.int8), coarse
        zeros = np.bincount(group, codes * zero, minlength=groups).astype(np.float64)
    offset = np.rint(bias / unit - zeros).astype(np.int64)
    whole = dataclasses.replace(step, weights=weights, bias=offset, act=NONE)
    if largest_sum(whole) >= MOST_SUM // 2:
        raise TrellisError(
            "a sum of int8 arithmetic needs more than 32 bits: too many terms; prune further, or "
            "export with arithmetic='fp32'"
        )
    before = 0
    while (largest_sum(whole) + (1 << before >> 1)) >> before >= MOST_SHIFTED:
        before += 1
    beside = 0.0 if extra < 0 else coding[extra].scale / middle.scale
    ratio = unit / middle.scale * 2.0**before
    after = MOST_AFTER
    while after and (
        np.abs(np.rint(ratio * 2.0**after)).max(initial=0) > 32767
        or np.rint(beside * 2.0**after) > MOST_BESIDE
    ):
        after -= 1
    multiplier = np.clip(np.rint(ratio * 2.0**after), -32767, 32767).astype(np.int16)
    times = int(min(np.rint(beside * 2.0**after), MOST_BESIDE))
    absent = 0 if extra < 0 else coding[extra].zero
    plain = step.act.name in _BOUNDS
    low, high = _bounds(step.act, made) if plain else (0, 255)
    constant = (middle.zero << after) + (1 << after >> 1) - absent * times
    table = None
    if not plain:
        table = made.encoded(step.act(middle.decoded(np.arange(256, dtype=np.uint8))))
    rescale = Rescale(before, after, times, absent, constant, low, high, made.zero, table)
    fixed = dataclasses.replace(
        whole, bias=(offset + (1 << before >> 1)).astype(np.int32), scale=multiplier
    )
    if not rescale.sound() or largest_sum(fixed) >> before >= MOST_SHIFTED:  # a mistake of ours
        raise AssertionError("a step in whole numbers could overflow")
    return fixed, rescale


def _alike(
    step: Step | Loop, scale: NDArray[np.float64], zero: Ints
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return, for steps whose weights are one, the unit of each group's sum, zeros and bias."""
    groups = len(step.bias)
    bias = step.bias.astype(np.float64)
    if isinstance(step, Step):
        firsts = np.cumsum(step.fan) - step.fan
        return scale[firsts], zero[firsts].astype(np.float64), bias
    count = len(step.taps) if step.kind == "conv" else 1
    count = step.window[0] * step.window[1] if step.kind == "mean" else count
    unit = step.scale.astype(np.float64) * scale
    least = np.maximum(np.abs(bias) / _MOST_BIAS, LEAST_SCALE)
    unit = np.where(np.abs(unit) < least, least, unit)
    return unit, np.full(groups, count) * zero.astype(np.float64), bias


def _bounds(act: Activation, made: Coding) -> tuple[int, int]:
    """Return the bytes between which an activation clips."""
    low, high = {"none": (-np.inf, np.inf), "relu": (0.0, np.inf)}.get(act.name, (act.a, act.b))
    ends = [np.clip(end / made.scale + made.zero, 0, 255) for end in (low, high)]
    return int(np.rint(ends[0])), int(np.rint(ends[1]))
