"""Read ``.trellis`` files. Nothing in them is trusted before it is checked."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import TrellisError
from ...limits import read_limited
from ..tables.form import KINDS, LOOPS, NAMES, VALUES, Activation, Loop, Step, Tables
from ..tables.int8 import (
    LEAST_SCALE,
    MOST_SHIFTED,
    MOST_SUM,
    Coding,
    Int8,
    Rescale,
    largest_sum,
)
from .encoding import (
    ADDS,
    BIASED,
    BORDERED,
    EXTRAS,
    INT8,
    LOOPED,
    MAGIC,
    MOST_BYTES,
    MOST_CODINGS,
    MOST_LOOPED,
    MOST_STEPS,
    MOST_UNITS,
    MOST_USES,
    PLAIN,
    RESCALE,
    SCALED,
    SECTIONS,
    SHARED,
    STEP,
    UNORDERED,
    VERSION,
    Ints,
    checked_meta,
    decoded,
    unplaced,
    unzigzag,
    varints,
)

# Checks: no address outside memory, no read before its write.


def check(tables: Tables) -> None:
    """Raise unless every address lies in memory and every read follows its write."""
    written = np.zeros(tables.size, bool)
    written[: tables.input_units] = True
    uses = looped = 0
    for number, step in enumerate(tables.steps):
        if isinstance(step, Loop):
            looped += len(step.sources) * step.window[0] * step.window[1] * step.positions
            if looped > MOST_LOOPED:
                raise TrellisError(f"its loops read more than {MOST_LOOPED:,} numbers")
            _check_loop(step, written, tables.input_units, number)
            continue
        uses += step.uses
        if uses > MOST_USES:
            raise TrellisError(f"it needs more than {MOST_USES:,} multiplications")
        _check(step, written, tables.input_units, number)
    for number, rescale in enumerate(() if tables.int8 is None else tables.int8.steps):
        largest = largest_sum(tables.steps[number])
        if (
            not rescale.sound()
            or largest >= MOST_SUM
            or largest >> rescale.before >= MOST_SHIFTED
            or tables.steps[number].act.name != "none"
        ):
            raise TrellisError(f"step {number} overflows 32 bits")
    _inside(tables.results, tables.size, "an output")
    if not written[tables.results].all():
        raise TrellisError("an output is never computed")


def _check(step: Step, written: NDArray[np.bool_], inputs: int, number: int) -> None:
    if name := step.not_finite():
        raise TrellisError(f"step {number} has a {name} that is not finite")
    if np.isnan(step.act.a) or np.isnan(step.act.b):
        raise TrellisError(f"step {number} has an activation with NaN")
    if step.kind == "max" and (np.any(step.fan == 0) or np.any(step.bias)):
        raise TrellisError(f"step {number} takes the maximum of nothing")
    _inside(step.outs, len(written), f"step {number} writes what")
    _inside(step.offsets, len(written), f"step {number} has an offset that")
    if np.any(step.outs < inputs) or len(np.unique(step.outs)) != len(step.outs):
        raise TrellisError(f"step {number} writes to an address twice, or over an input")
    if step.adds and (step.kind == "max" or not written[step.outs].all()):
        raise TrellisError(f"step {number} adds to what is not computed yet")
    now = np.zeros(len(written), bool)
    now[step.outs] = True
    for some, _, term in step.pieces(1 << 20):
        for terms in (step.terms, step.others):
            if len(terms):
                at = (terms[term] + step.offsets[some][:, None]).reshape(-1)
                _inside(at, len(written), f"step {number} reads what")
                if not written[at].all() or now[at].any():
                    raise TrellisError(f"step {number} reads what is not computed yet")
    written |= now


def _check_loop(loop: Loop, written: NDArray[np.bool_], inputs: int, number: int) -> None:
    """Raise unless each whole window reads what was computed before, and writes what is its own."""
    size = len(written)
    if name := loop.not_finite():
        raise TrellisError(f"loop {number} has a {name} that is not finite")
    if np.isnan(loop.act.a) or np.isnan(loop.act.b):
        raise TrellisError(f"loop {number} has an activation with NaN")
    outs = (loop.places() + np.arange(loop.shape[0])[:, None] * loop.out[1]).reshape(-1)
    zeros = loop.cleared()
    now = np.zeros(size, bool)
    for places in (outs, zeros):
        _inside(places, size, f"loop {number} writes what")
        if np.any(places < inputs) or now[places].any() or len(np.unique(places)) != len(places):
            raise TrellisError(f"loop {number} writes to an address twice, or over an input")
        now[places] = True
    read = (loop.window_read()[:, None] + loop.positions_read()).reshape(-1)
    for source in loop.sources:
        _inside(read + source, size, f"loop {number} reads what")
        if not written[read + source].all() or now[read + source].any():
            raise TrellisError(f"loop {number} reads what is not computed yet")
    for channel, extra in enumerate(loop.extras):
        at = loop.places() - loop.out[0] + extra
        if extra < 0:
            continue
        _inside(at, size, f"loop {number} adds what")
        itself = extra == loop.out[0] + channel * loop.out[1]
        if not written[at].all() or (now[at].any() and not itself):
            raise TrellisError(f"loop {number} adds what is not computed yet")
    written |= now


def _inside(places: NDArray[np.int64], size: int, what: str) -> None:
    if len(places) and (int(places.min()) < 0 or int(places.max()) >= size):
        raise TrellisError(f"{what} lies outside its memory")


_TYPES = {"fp32": "<f4", "fp16": "<f2", "int8": "<i1"}


def read(path: str | os.PathLike[str]) -> Tables:
    """Read a ``.trellis`` file; raise if it is damaged, truncated or inconsistent."""
    return read_bytes(content(path), str(path))


def content(path: str | os.PathLike[str]) -> bytes:
    """Return all bytes of a file."""
    try:
        return read_limited(Path(path), MOST_BYTES)
    except OSError as error:
        raise TrellisError(f"cannot read {str(path)!r}: {error.strerror or error}") from None


def read_bytes(data: bytes, name: str = "the file") -> Tables:
    """Read from memory; ``name`` is for messages."""
    try:
        meta, body, version = _sections(data)
        tables = _tables(body, meta, version)
        check(tables)
        return tables
    except (TrellisError, struct.error, ValueError, OverflowError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise TrellisError(f"{name!r} is damaged or not a .trellis file: {reason}") from None


def read_meta(data: bytes, name: str = "the file") -> dict[str, Any]:
    """Return the description in a file, after a check of the checksums but not of the tables."""
    try:
        meta, body, _ = _sections(data)
        _check_values(body, meta)
        return meta
    except (TrellisError, struct.error, ValueError, RecursionError) as error:
        raise TrellisError(f"{name!r} is damaged or not a .trellis file: {error}") from None


def _sections(data: bytes) -> tuple[dict[str, Any], bytes, int]:
    if data[:8] != MAGIC:
        raise TrellisError("it has another signature")
    version, count = struct.unpack_from("<II", data, 8)
    if version not in (PLAIN, LOOPED, VERSION):
        raise TrellisError(f"it has version {version}; this Trellis reads up to {VERSION}")
    if count != len(SECTIONS):
        raise TrellisError(f"expected {len(SECTIONS)} sections, got {count}")
    end = 16 + 12 * count
    (told,) = struct.unpack_from("<I", data, end)
    if zlib.crc32(data[:end]) != told:
        raise TrellisError("its header is damaged (checksum)")
    at, bodies = end + 4, []
    for number, tag in enumerate(SECTIONS):
        found, length, crc = struct.unpack_from("<4sII", data, 16 + 12 * number)
        body = data[at : at + length]
        if found != tag or len(body) != length:
            raise TrellisError(f"its section {tag.decode()} is truncated or missing")
        if zlib.crc32(body) != crc:
            raise TrellisError(f"its section {tag.decode()} is damaged (checksum)")
        bodies.append(body)
        at += length
    if at != len(data):
        raise TrellisError(f"{len(data) - at} bytes follow its end")
    return checked_meta(json.loads(bodies[0].decode("utf-8"))), bodies[1], version


def _tables(data: bytes, meta: dict[str, Any], version: int) -> Tables:
    inputs, outputs, size, count, values = struct.unpack_from("<IIIIB", data, 0)
    if (
        size > MOST_UNITS
        or outputs > MOST_UNITS
        or count > MOST_STEPS
        or inputs > size
        or not outputs
    ):
        raise TrellisError(f"it needs {size:,} units in {count:,} steps")
    _check_values(data, meta)
    if (version == VERSION) != (values == INT8):
        raise TrellisError(f"unknown kind of values {values}")
    at, room = 17, MOST_USES
    steps: list[Step | Loop] = []
    rescales: list[Rescale] | None = None
    kind, codings = "int8", []
    if values == INT8:
        rescales = []
        for shapes in (meta["inputs"], meta["outputs"]):
            found, at = _codings(data, at, shapes)
            codings.append(found)
    else:
        kind = VALUES[values]
    for _ in range(count):
        if version > PLAIN and at < len(data) and data[at] >= len(KINDS):
            loop, at = _loop(data, at, kind, rescales)
            steps.append(loop)
            continue
        step, at = _step(data, at, kind, size, room, rescales)
        room -= max(len(step.terms), len(step.outs))
        steps.append(step)
    (first,) = struct.unpack_from("<I", data, at)
    later, at = decoded(data, at + 4, outputs - 1)
    results = np.cumsum(np.concatenate([[first], unzigzag(later) + 1]))
    if at != len(data):
        raise TrellisError("data follows its tables")
    form = None if rescales is None else Int8(tuple(rescales), *codings)
    meta.pop("arithmetic", None)
    shapes = {name: tuple(tuple(s) for s in meta.pop(name)) for name in ("inputs", "outputs")}
    tables = Tables(
        shapes["inputs"], shapes["outputs"], size, tuple(steps), results,
        meta.pop("values"), meta, form,
    )  # fmt: skip
    if sum(int(np.prod(s, dtype=object)) for s in shapes["outputs"]) != outputs:
        raise TrellisError(f"expected {outputs} outputs, got the shapes {shapes['outputs']}")
    if tables.input_units != inputs:
        raise TrellisError(f"expected {inputs} inputs, got the shapes {shapes['inputs']}")
    return tables


def _check_values(data: bytes, meta: dict[str, Any]) -> None:
    (values,) = struct.unpack_from("<B", data, 16)
    known = (*VALUES, "int8")
    whole = (values == INT8) == ("arithmetic" in meta)
    if values >= len(known) or known[values] != meta["values"] or not whole:
        raise TrellisError(f"unknown kind of values {values}")


def _codings(data: bytes, at: int, shapes: list[list[int]]) -> tuple[tuple[Coding, ...], int]:
    [count], at = varints(data, at, 1)
    if count != len(shapes) or count > MOST_CODINGS:
        raise TrellisError(f"expected {len(shapes)} codings, got {count}")
    made = []
    for shape in shapes:
        [units], at = varints(data, at, 1)
        scale, zero = struct.unpack_from("<fB", data, at)
        at += 5
        if units != math.prod(shape) or not LEAST_SCALE <= scale < np.inf:
            raise TrellisError(f"a coding of {units:,} units has the scale {scale}")
        made.append(Coding(scale, zero))
    return tuple(made), at


def _rescaled(data: bytes, at: int, groups: int) -> tuple[Rescale, Any, Any, int]:
    """Return how sums become bytes, multipliers and biases."""
    numbers = struct.unpack_from(RESCALE, data, at)
    before, after, low, high, zero, absent, has_table, none, beside, offset = numbers
    at += struct.calcsize(RESCALE)
    if has_table > 1 or none:
        raise TrellisError("a step has an unknown way to make bytes of sums")
    table, at = _array(data, at, "|u1", 256 * has_table)
    multipliers, at = _array(data, at, "<i2", groups)
    biases, at = decoded(data, at, groups)
    made = Rescale(
        before, after, beside, absent, offset, low, high, zero, table if has_table else None
    )
    return made, multipliers, unzigzag(biases).astype(np.int32), at


def _step(
    data: bytes, at: int, values: str, size: int, room: int, rescales: list[Rescale] | None
) -> tuple[Step, int]:
    kind, act, flags, zero, a, b, groups, instances, terms, offset, out = struct.unpack_from(
        STEP, data, at
    )
    at += struct.calcsize(STEP)
    if kind >= len(KINDS) or act >= len(NAMES) or flags > 15 or zero:
        raise TrellisError(f"unknown step: kind {kind}, activation {act}, flags {flags}")
    if max(terms, instances) > room:  # before memory is allocated
        raise TrellisError(f"it needs more than {MOST_USES:,} multiplications")
    if not 0 < groups <= instances or max(terms, instances) > 8 * len(data):
        raise TrellisError(f"a step claims {groups:,} groups in {len(data):,} bytes")
    whole = None
    if rescales is not None:
        if flags & ~UNORDERED or KINDS[kind] == "dot":
            raise TrellisError("a step in 8 bits has what only floats have")
        rescale, *whole, at = _rescaled(data, at, groups)
        rescales.append(rescale)
    bias, at = _array(data, at, "<f4", groups if flags & BIASED else 0)
    scale, at = _array(data, at, "<u2", groups if flags & SCALED else 0)
    weights, at = _array(data, at, _TYPES[values], 0 if KINDS[kind] == "max" else terms)
    fan, at = decoded(data, at, groups)
    fan = np.cumsum(fan)
    count, at = decoded(data, at, groups)
    count = count + 1
    if int(fan.sum()) != terms or int(count.sum()) != instances:
        raise TrellisError(f"a step's groups do not add up to {terms:,} and {instances:,}")
    pairs = 2 if KINDS[kind] == "dot" else 1
    gaps, at = decoded(data, at, pairs * terms - int((fan > 0).sum()))
    gaps = unzigzag(gaps) if pairs == 2 else gaps
    places = _within(gaps, fan * pairs, np.zeros(groups, np.int64))
    begins, at = decoded(data, at, groups - 1)
    later, at = decoded(data, at, instances - groups)
    offsets = _within(later, count, np.cumsum(np.concatenate([[offset], unzigzag(begins)])))
    outs, at = _outs(data, at, count, out, bool(flags & UNORDERED), size)
    step = Step(
        KINDS[kind], Activation(NAMES[act], float(a), float(b)), fan, count,
        bias if flags & BIASED else np.zeros(groups, np.float32),
        (scale.astype(np.uint32) << 16).view(np.float32)
        if flags & SCALED else np.ones(groups, np.float32),
        places[::pairs], places[1::2] if pairs == 2 else np.zeros(0, np.int64),
        weights, offsets, outs, bool(flags & ADDS),
    )  # fmt: skip
    if whole is not None:
        step = dataclasses.replace(step, scale=whole[0], bias=whole[1])
    return step, at


def _loop(data: bytes, at: int, values: str, rescales: list[Rescale] | None) -> tuple[Loop, int]:
    kind, act, flags, zero, a, b = struct.unpack_from("<BBBBff", data, at)
    kind -= len(KINDS)
    if kind >= len(LOOPS) or act >= len(NAMES) or flags > 31 or zero:
        raise TrellisError(f"unknown loop: kind {kind}, activation {act}, flags {flags}")
    shared = bool(flags & SHARED)
    numbers, at = varints(data, at + 12, 19 if flags & BORDERED else 15)
    channels, height, width, *rest = numbers
    out, stride, window, reach = rest[:4], rest[4:6], rest[6:8], rest[8:10]
    sources, taps, *border = rest[10:]
    if max(numbers) > MOST_UNITS or min(channels, height, width, *window) < 1:
        raise TrellisError("a loop has a size that is zero or too large")
    if channels * height * width > MOST_UNITS or window[0] * window[1] * sources > MOST_UNITS:
        raise TrellisError("a loop is too large")
    if max(channels, sources, taps) > 8 * len(data):
        raise TrellisError(f"a loop claims {taps:,} taps in {len(data):,} bytes")
    fits = sources == channels and (taps == 0) == (LOOPS[kind] == "mean")
    if not (fits if shared else LOOPS[kind] == "conv" and (sources > 0 or taps == 0)):
        raise TrellisError("a loop has the wrong number of sources or taps")
    if border and (out[1] != (border[2] + border[0]) * (border[3] + border[1]) or not any(border)):
        raise TrellisError("a loop's border does not fit its planes")
    if border and not (border[0] or border[1]):
        raise TrellisError("a loop has an empty border")
    whole = None
    if rescales is not None:
        if flags & (BIASED | SCALED):
            raise TrellisError("a loop in 8 bits has what only floats have")
        rescale, *whole, at = _rescaled(data, at, channels)
        rescales.append(rescale)
    bias, at = _array(data, at, "<f4", channels if flags & BIASED else 0)
    scale, at = _array(data, at, "<f4" if shared else "<u2", channels if flags & SCALED else 0)
    if not shared:
        scale = (scale.astype(np.uint32) << 16).view(np.float32)
    weights, at = _array(data, at, _TYPES[values], 0 if shared else taps)
    places = np.zeros(0, np.int64)
    if sources:
        places, at = unplaced(data, at, sources)
    fan = np.array([taps], np.int64)
    if not shared:
        fan, at = decoded(data, at, channels)
        if int(fan.sum()) != taps:
            raise TrellisError(f"a loop's channels do not add up to {taps:,} taps")
    gaps, at = decoded(data, at, taps)
    steps = gaps + 1
    ends = np.cumsum(fan)
    total = np.cumsum(steps)
    before = np.concatenate([[0], total])[(ends - fan)]
    flat = total - 1 - np.repeat(before, fan)
    if len(flat) and int(flat.max()) >= window[0] * window[1] * (1 if shared else sources):
        raise TrellisError("a loop has a tap outside its window")
    extras = np.zeros(0, np.int64)
    if flags & EXTRAS:
        real, at = decoded(data, at, channels)
        if not len(real) or int(real.max()) != 1:
            raise TrellisError("a loop has extras for no channel")
        found, at = unplaced(data, at, int(real.sum()))
        if found.min() < 1 or found.max() > MOST_UNITS:
            raise TrellisError("a loop adds what lies outside its memory")
        extras = np.full(channels, -1, np.int64)
        extras[real == 1] = found
    loop = Loop(
        LOOPS[kind], Activation(NAMES[act], float(a), float(b)), (channels, height, width),
        (out[0], out[1], out[2], out[3]), (stride[0], stride[1]), (window[0], window[1]),
        (reach[0], reach[1]), places, shared, fan, flat, weights,
        scale if flags & SCALED else np.ones(channels, np.float32),
        bias if flags & BIASED else np.zeros(channels, np.float32), extras,
        (border[0], border[1], border[2], border[3]) if border else (0, 0, 0, 0),
    )  # fmt: skip
    if whole is not None:
        loop = dataclasses.replace(loop, scale=whole[0], bias=whole[1])
    return loop, at


def _outs(
    data: bytes, at: int, count: Ints, first: int, unordered: bool, size: int
) -> tuple[Ints, int]:
    several = count > 1
    begins, at = decoded(data, at, len(count) - 1)
    strides, at = decoded(data, at, int(several.sum()))
    gaps, at = decoded(data, at, int(count.sum()) - len(count))
    if np.any(strides > size) or np.any(gaps > 2 * MOST_UNITS):
        raise TrellisError("a step writes outside its memory")
    each = np.repeat(strides, count[several] - 1)
    gaps = unzigzag(gaps) if unordered else (gaps + 1) * each
    length = np.zeros(len(count), np.int64)  # from a group's first out to its last
    if len(gaps):
        sizes = count[several] - 1
        length[several] = np.add.reduceat(gaps, np.cumsum(sizes) - sizes)
    jumps = np.concatenate([[first], unzigzag(begins) + length[:-1] + 1])
    return _within(gaps, count, np.cumsum(jumps)), at


def _within(gaps: Ints, sizes: Ints, begins: Ints) -> Ints:
    """Turn the first place of each group and the gaps behind it into places."""
    firsts = np.cumsum(sizes) - sizes
    steps = np.zeros(int(sizes.sum()), np.int64)
    some = sizes > 0
    later = np.ones(len(steps), bool)
    later[firsts[some]] = False
    steps[later] = gaps
    total = np.cumsum(steps)
    begin = np.repeat(begins[some] - total[firsts[some]], sizes[some])
    places: Ints = total + begin
    return places


def _array(data: bytes, at: int, kind: str, count: int) -> tuple[NDArray[Any], int]:
    size = count * np.dtype(kind).itemsize
    if size > len(data) - at:
        raise TrellisError("a table ends too early")
    return np.frombuffer(data, kind, count, at).astype(kind[1:]), at + size
