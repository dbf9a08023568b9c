"""The ``.trellis`` format: its layout, the check of its JSON, and its integer code.

Integers are Rice coded (Rice, 1979): the high part in unary, the low ``k`` bits unchanged. Gaps
between random places are distributed geometrically, for which this is the shortest prefix code up
to rounding. All unary parts come first, then all low bits, so that numpy decodes a stream without a
loop and C with two pointers.
"""

from __future__ import annotations

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
from ...files import check_writable, replacing
from ..recording import BASES, ORIGINS
from ..stream import Streaming
from ..tables.form import KINDS, LOOPS, VALUES, Loop, Step, Tables
from ..tables.int8 import Coding, Rescale

# The layout of a file.
#
# ========  ==========================================================================
# bytes     content, little-endian
# ========  ==========================================================================
# 8         ``TRELLIS\n``
# 4         version
# 4         number of sections
# 12 each   a section's tag (4 letters), its length, its CRC-32
# 4         CRC-32 of everything before
# …         the sections, one after another, to the end of the file
# ========  ==========================================================================
#
# ``META`` is JSON: shapes, classes, how to prepare a recording. ``DATA`` is the tables: four
# 32-bit numbers (inputs, outputs, size of memory, steps) and the kind of values, then each step:
#
# - kind, activation, flags (1 biased, 2 scaled, 4 unordered, 8 adds), 0; the activation's two
# numbers; how many groups, instances and terms it has; its first offset and its first out,
# - biases of its groups (fp32) and scales (the upper half of an fp32) where the flags say so;
# weights, except of a max,
# - Rice-coded (`rice`): fan of each group less that of the one before; count less 1; each group's
# gaps between its terms, of which the first is 0 (the terms of a dot are pairs, and their gaps
# zigzag); each later group's first offset less that of the group before, zigzag; gaps between the
# offsets of a group; each later group's first out less what follows the last of the group before,
# zigzag; the stride of each group of several instances; gaps between the outs of a group, divided
# by its stride, less 1 (where they are unordered, the gaps as they are, zigzag);
#
# A loop (version 2) has kind, activation, flags (1 biased, 2 scaled, 4 shared, 8 bordered, 16
# extras), 0 and the activation's two numbers; then, in seven bits a byte, low ones first
# (`varint`): channels, height, width, the four numbers of its outs, of its stride (2), window (2)
# and reach (2), how many sources and taps it has, and its border (4) if it is bordered; then
#
# - biases of its channels (fp32) and scales (fp32 if shared, else the upper half of an fp32) where
# the flags say so; weights, unless shared,
# - `places` of its sources; Rice-coded, unless shared, the fan of each channel; each channel's
# taps, less what follows the tap before; with extras, whether each channel has one, and their
# `places`;
#
# and at the end where the first output lies (32 bits) and, Rice-coded, where each other lies, less
# what follows the one before, zigzag.
#
# Version 3 is arithmetic in 8 bits, and its kind of values is 3. Behind the kind are the codings:
# how many inputs there are (`varint`) and, of each, its units (`varint`), scale (fp32) and zero (a
# byte); outputs alike. Steps and loops have no activation, and are neither biased nor scaled. In
# the place of biases and scales they have `RESCALE`: before, after, low, high, zero, absent,
# whether there is a table, 0; beside and offset; the table of 256 bytes; then the multipliers of
# groups or channels (16 bits) and, Rice-coded, their biases, zigzag. Weights are int8.


MAGIC = b"TRELLIS\n"
VERSION = 3  # of arithmetic in 8 bits; files without it have the lower numbers, as before
LOOPED = 2
PLAIN = 1  # of files without loops
SECTIONS = (b"META", b"DATA")
STEP = "<BBBBffIIIII"
RESCALE = "<BBBBBBBBii"
INT8 = len(VALUES)  # the kind of values of version 3
MOST_CODINGS = 1 << 10
BIASED, SCALED, UNORDERED, ADDS = 1, 2, 4, 8
SHARED, BORDERED, EXTRAS = 4, 8, 16  # of loops
MOST_UNITS = 1 << 24
MOST_USES = 1 << 26
MOST_LOOPED = 1 << 28  # reads of all windows of all planes, which a reader checks one by one
MOST_STEPS = 1 << 16
MOST_BYTES = 1 << 30  # of a whole file


# The JSON part of a file: shapes, classes, how to prepare a recording.


def checked_meta(meta: Any) -> dict[str, Any]:
    """Return the JSON, after a check of the types of everything that is used."""
    if not isinstance(meta, dict) or meta.get("values") not in VALUES:
        raise TrellisError("its META has no valid 'values'")
    if meta.get("arithmetic", "int8") != "int8" or (
        "arithmetic" in meta and meta["values"] != "int8"
    ):
        raise TrellisError("its META has no valid 'arithmetic'")
    for name in ("inputs", "outputs"):
        shapes = meta.get(name)
        if not isinstance(shapes, list) or not shapes or not all(map(_shape, shapes)):
            raise TrellisError(f"its META has no valid {name!r}")
    classes = meta.get("classes")
    outputs = math.prod(meta["outputs"][0])
    if classes is not None and not (_words(classes) and len(classes) == outputs):
        raise TrellisError(f"its META has no valid 'classes': expected {outputs} names")
    if (recording := meta.get("recording")) is not None:
        _check_recording(recording, meta["inputs"])
    return meta


def _check_recording(recording: Any, inputs: list[list[int]]) -> None:
    sound = (
        isinstance(recording, dict)
        and _words(recording.get("joints"))
        and _whole(recording.get("chunks"), 1)
        and isinstance(recording.get("roots"), list)
        and bool(recording["roots"])
        and all(_whole(root, 0, len(recording["joints"]) - 1) for root in recording["roots"])
        and _above_zero(recording.get("scale"))
        and recording.get("basis", BASES[0]) in BASES
        and recording.get("origin", ORIGINS[0]) in ORIGINS
        and _body(recording.get("body"), len(recording["joints"]))
        and _bones(recording.get("bones"), len(recording["joints"]))
        and _above_zero(recording.get("length", 1.0 if "bones" not in recording else None))
    )
    if not sound or [inputs] != [[[len(recording["joints"]), 3 * recording["chunks"]]]]:
        raise TrellisError("its META has a 'recording' that does not fit its inputs")
    if "stream" in recording:
        try:
            Streaming.from_notes(recording["stream"])
        except (TrellisError, TypeError) as error:
            raise TrellisError(f"its META has a 'stream' that is damaged: {error}") from None


def _body(value: Any, joints: int) -> bool:
    if value is None:
        return True
    four = isinstance(value, list) and len(value) == 4
    return four and all(_whole(joint, 0, joints - 1) for joint in value)


def _bones(value: Any, joints: int) -> bool:
    if value is None:
        return True
    pairs = isinstance(value, list) and all(isinstance(b, list) and len(b) == 2 for b in value)
    return pairs and bool(value) and all(_whole(j, 0, joints - 1) for bone in value for j in bone)


def _shape(value: Any) -> bool:
    whole = isinstance(value, list) and len(value) <= 16 and all(_whole(n, 1) for n in value)
    return whole and math.prod(value) <= 1 << 31


def _whole(value: Any, least: int, most: int = 1 << 31) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _above_zero(value: Any) -> bool:
    return isinstance(value, float | int) and math.isfinite(value) and value > 0


def _words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


Ints = NDArray[np.int64]
FAR = 24
MARK = 0x80


def encoded(values: Ints) -> bytes:
    """Encode integers: k, the number of unary bytes, the unary part, the low bits.

    The unary part of a number is q zeros and a one. A number with q ≥ `FAR` has FAR zeros there,
    and all its 32 bits follow the low bits; k is then marked, and the count of such numbers follows
    the size of the unary part.

    >>> encoded(np.array([3, 0, 1])).hex()
    '00010000001a'
    """
    k = _best(values)
    high = np.minimum(values >> k, FAR)
    far = values[high == FAR]
    ends = np.cumsum(high + 1) - 1
    unary = np.zeros(int(ends[-1]) + 1 if len(values) else 0, np.uint8)
    unary[ends] = 1
    low = (values[:, None] >> np.arange(k - 1, -1, -1)) & 1  # (values, k)
    top = np.packbits(unary)
    head = struct.pack("<BI", k | (MARK if len(far) else 0), len(top))
    return b"".join(
        [
            head,
            struct.pack("<I", len(far)) if len(far) else b"",
            top.tobytes(),
            np.packbits(low.astype(np.uint8)).tobytes(),
            far.astype("<u4").tobytes(),
        ]
    )


def decoded(data: bytes, at: int, count: int) -> tuple[Ints, int]:
    """Decode ``count`` integers from ``data[at:]``; return them and where they end."""
    k, size = struct.unpack_from("<BI", data, at)
    far, at = 0, at + 5
    if k & MARK:
        (far,) = struct.unpack_from("<I", data, at)
        k, at = k - MARK, at + 4
    rest = (count * k + 7) // 8
    if k > 31 or size + rest + 4 * far > len(data) - at:
        raise TrellisError("a table ends too early")
    if size > (count * (FAR + 1) + 7) // 8:  # checked before it is unpacked to a byte per bit
        raise TrellisError(f"a table of {count} entries has {size} bytes of unary")
    ends = np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8, size, at)))
    if len(ends) != count or size != (int(ends[-1]) // 8 + 1 if count else 0):
        raise TrellisError(f"a table has {len(ends)} entries, expected {count}")
    high = np.diff(ends, prepend=-1).astype(np.int64) - 1
    values = high.copy()
    if k:
        bits = np.unpackbits(np.frombuffer(data, np.uint8, rest, at + size))[: count * k]
        values = high << k
        for place in range(k):
            values += bits[place::k].astype(np.int64) << (k - 1 - place)
    if np.any(high > FAR) or int((high == FAR).sum()) != far:
        raise TrellisError("a table has a wrong number of far entries")
    values[high == FAR] = np.frombuffer(data, "<u4", far, at + size + rest)
    if count and int(values.max()) >= 1 << 31:
        raise TrellisError("a table has an entry that is too large")
    return values, at + size + rest + 4 * far


def zigzag(values: Ints) -> Ints:
    """Map small numbers of either sign to small numbers: 0, −1, 1, −2, … to 0, 1, 2, 3, …"""
    return (values << 1) ^ (values >> 63)


def unzigzag(values: Ints) -> Ints:
    return (values >> 1) ^ -(values & 1)


def _best(values: Ints) -> int:
    if len(values) == 0:
        return 0
    sizes = []
    for k in range(31):
        high = values >> k
        far = int((high >= FAR).sum())
        sizes.append(int(np.minimum(high, FAR).sum()) + len(values) * (k + 1) + 32 * far)
    return int(np.argmin(sizes))


def varint(value: int) -> bytes:
    """
    >>> varint(5).hex(), varint(300).hex()
    ('05', 'ac02')
    """
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def varints(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Decode integers of up to four bytes each; return them and where they end."""
    found = []
    for _ in range(count):
        value = 0
        for place in range(5):
            if at >= len(data) or place == 4:
                raise TrellisError("a number ends too early, or is too large")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                break
        found.append(value)
    return found, at


def places(values: Ints) -> bytes:
    """Encode addresses: the first, the common divisor of their distances, the distances by it."""
    gaps = np.diff(values)
    unit = max(int(np.gcd.reduce(gaps)), 1) if len(gaps) else 1
    return varint(int(values[0])) + varint(unit) + encoded(zigzag(gaps // unit - 1))


def unplaced(data: bytes, at: int, count: int) -> tuple[Ints, int]:
    """Decode ``count`` addresses, one at least."""
    (first, unit), at = varints(data, at, 2)
    gaps, at = decoded(data, at, count - 1)
    if unit > MOST_UNITS or np.any(gaps > 2 * MOST_UNITS):
        raise TrellisError("a table has a distance that is too large")
    return np.cumsum(np.concatenate([[first], (unzigzag(gaps) + 1) * unit])), at


# Write ``.trellis`` files.


def write(tables: Tables, path: str | os.PathLike[str]) -> int:
    """Write a ``.trellis`` file, all of it or nothing; return its size in bytes."""
    target = Path(path)
    check_writable(target)
    data = to_bytes(tables)
    with replacing(target) as [draft]:
        draft.write_bytes(data)
    return len(data)


def to_bytes(tables: Tables) -> bytes:
    """Return the content of a ``.trellis`` file."""
    uses = sum(step.uses for step in tables.steps if isinstance(step, Step))
    if tables.size > MOST_UNITS or uses > MOST_USES:
        raise TrellisError(
            f"expected at most {MOST_UNITS:,} units and {MOST_USES:,} multiplications, got "
            f"{tables.size:,} and {uses:,}; prune further, or export ONNX (trellis export "
            "onnx)"
        )
    meta = {
        "inputs": tables.inputs,
        "outputs": tables.outputs,
        "values": tables.values,
        **({"arithmetic": "int8"} if tables.int8 else {}),
        **tables.notes,
    }
    bodies = (json.dumps(meta, ensure_ascii=False, separators=(",", ":")).encode(), _data(tables))
    version = VERSION if tables.int8 else LOOPED if tables.loops else PLAIN
    head = MAGIC + struct.pack("<II", version, len(bodies))
    for tag, body in zip(SECTIONS, bodies, strict=True):
        head += tag + struct.pack("<II", len(body), zlib.crc32(body))
    return head + struct.pack("<I", zlib.crc32(head)) + b"".join(bodies)


def _data(tables: Tables) -> bytes:
    counts = (tables.input_units, tables.output_units, tables.size, len(tables.steps))
    kind = VALUES.index(tables.values) if tables.int8 is None else INT8
    parts = [struct.pack("<IIIIB", *counts, kind)]
    rescales: tuple[Rescale | None, ...] = (None,) * len(tables.steps)
    if tables.int8 is not None:
        rescales = tables.int8.steps
        parts.append(_codings(tables.inputs, tables.int8.inputs))
        parts.append(_codings(tables.outputs, tables.int8.outputs))
    for step, rescale in zip(tables.steps, rescales, strict=True):
        parts.append(_loop(step, rescale) if isinstance(step, Loop) else _step(step, rescale))
    results = tables.results
    parts += [struct.pack("<I", results[0]), encoded(zigzag(np.diff(results) - 1))]
    return b"".join(parts)


def _codings(shapes: tuple[tuple[int, ...], ...], codings: tuple[Coding, ...]) -> bytes:
    made = varint(len(shapes))
    for shape, coding in zip(shapes, codings, strict=True):
        made += varint(math.prod(shape)) + struct.pack("<fB", coding.scale, coding.zero)
    return made


def _rescaled(rescale: Rescale, step: Step | Loop) -> bytes:
    r = rescale
    bounds = (r.low, r.high, r.zero, r.absent, r.table is not None, 0)
    head = struct.pack(RESCALE, r.before, r.after, *bounds, r.beside, r.offset)
    table = b"" if r.table is None else r.table.tobytes()
    biases = encoded(zigzag(step.bias.astype(np.int64)))
    return head + table + step.scale.astype("<i2").tobytes() + biases


def _step(step: Step, rescale: Rescale | None) -> bytes:
    biased = rescale is None and bool(np.any(step.bias))
    scaled = rescale is None and bool(np.any(step.scale != 1))
    firsts = np.cumsum(step.count) - step.count
    unordered, outs = _outs(step, firsts)
    flags = biased * BIASED + scaled * SCALED + unordered * UNORDERED + step.adds * ADDS
    head = struct.pack(
        STEP, KINDS.index(step.kind), step.act.code, flags, 0, step.act.a, step.act.b,
        len(step.fan), len(step.outs), len(step.terms), step.offsets[0], step.outs[0],
    )  # fmt: skip
    return b"".join(
        [
            head,
            b"" if rescale is None else _rescaled(rescale, step),
            _floats(step.bias) if biased else b"",
            _halves(step.scale) if scaled else b"",
            (step.weights + step.weights.dtype.type(0)).tobytes(),  # −0.0 is 0.0
            encoded(np.diff(step.fan, prepend=0)),
            encoded(step.count - 1),
            encoded(_gaps(step)),
            encoded(zigzag(np.diff(step.offsets[firsts]))),
            encoded(np.diff(step.offsets, prepend=0)[_later(len(step.outs), firsts)]),
            *outs,
        ]
    )


def _outs(step: Step, firsts: Ints) -> tuple[bool, list[bytes]]:
    """Return whether outs are unordered anywhere, and the streams of firsts, strides, gaps."""
    lasts = step.outs[firsts + step.count - 1]
    begins = encoded(zigzag(step.outs[firsts][1:] - lasts[:-1] - 1))
    gaps = np.diff(step.outs, prepend=0)[_later(len(step.outs), firsts)]
    several = step.count > 1
    if np.any(gaps <= 0):
        return True, [
            begins,
            encoded(np.zeros(int(several.sum()), np.int64)),
            encoded(zigzag(gaps)),
        ]
    if len(gaps) == 0:
        return False, [begins, encoded(gaps), encoded(gaps)]
    sizes = step.count[several] - 1
    strides = np.gcd.reduceat(gaps, np.cumsum(sizes) - sizes)
    return False, [begins, encoded(strides), encoded(gaps // np.repeat(strides, sizes) - 1)]


def _later(size: int, firsts: Ints) -> NDArray[np.bool_]:
    later = np.ones(size, bool)
    later[firsts] = False
    return later


def _gaps(step: Step) -> Ints:
    dot = step.kind == "dot"
    terms = np.stack([step.terms, step.others], 1).reshape(-1) if dot else step.terms
    fan = step.fan * (2 if dot else 1)
    gaps = np.diff(terms, prepend=0)[_later(len(terms), (np.cumsum(fan) - fan)[fan > 0])]
    return zigzag(gaps) if dot else gaps


def _floats(values: NDArray[np.float32]) -> bytes:
    return (values + np.float32(0)).astype("<f4").tobytes()


def _halves(values: NDArray[np.float32]) -> bytes:
    bits = values.astype("<f4").view("<u4")
    if np.any(bits & 0xFFFF):
        raise AssertionError("scales are rounded to the upper half of fp32 when they are chosen")
    return (bits >> 16).astype("<u2").tobytes()


def _loop(loop: Loop, rescale: Rescale | None) -> bytes:
    biased = rescale is None and bool(np.any(loop.bias))
    scaled = rescale is None and bool(np.any(loop.scale != 1))
    flags = biased * BIASED + scaled * SCALED + loop.shared * SHARED
    flags += any(loop.border) * BORDERED + bool(len(loop.extras)) * EXTRAS
    kind = len(KINDS) + LOOPS.index(loop.kind)
    geometry = [*loop.shape, *loop.out, *loop.stride, *loop.window, *loop.reach]
    geometry += [len(loop.sources), len(loop.taps), *(loop.border if any(loop.border) else ())]
    ends = np.cumsum(loop.fan)
    gaps = np.diff(loop.taps, prepend=-1) - 1
    begins = (ends - loop.fan)[loop.fan > 0]
    gaps[begins] = loop.taps[begins]
    parts = [struct.pack("<BBBBff", kind, loop.act.code, flags, 0, loop.act.a, loop.act.b)]
    parts += [varint(int(value)) for value in geometry]
    parts.append(b"" if rescale is None else _rescaled(rescale, loop))
    parts.append(_floats(loop.bias) if biased else b"")
    if scaled:
        parts.append(_floats(loop.scale) if loop.shared else _halves(loop.scale))
    parts.append((loop.weights + loop.weights.dtype.type(0)).tobytes())
    if len(loop.sources):
        parts.append(places(loop.sources))
    if not loop.shared:
        parts.append(encoded(loop.fan))
    parts.append(encoded(gaps))
    if len(loop.extras):
        real = loop.extras >= 0
        parts += [encoded(real.astype(np.int64)), places(loop.extras[real])]
    return b"".join(parts)
