"""Write ``.trellis`` files."""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import TrellisError
from ...files import check_writable, replacing
from ..tables.form import KINDS, VALUES, Step, Tables
from ..tables.loop import LOOPS, Loop
from .encoding import (
    ADDS,
    BIASED,
    BORDERED,
    EXTRAS,
    MAGIC,
    MOST_UNITS,
    MOST_USES,
    PLAIN,
    SCALED,
    SECTIONS,
    SHARED,
    STEP,
    UNORDERED,
    VERSION,
    Ints,
    encoded,
    places,
    varint,
    zigzag,
)


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
        **tables.notes,
    }
    bodies = (json.dumps(meta, ensure_ascii=False, separators=(",", ":")).encode(), _data(tables))
    version = VERSION if tables.loops else PLAIN
    head = MAGIC + struct.pack("<II", version, len(bodies))
    for tag, body in zip(SECTIONS, bodies, strict=True):
        head += tag + struct.pack("<II", len(body), zlib.crc32(body))
    return head + struct.pack("<I", zlib.crc32(head)) + b"".join(bodies)


def _data(tables: Tables) -> bytes:
    counts = (tables.input_units, tables.output_units, tables.size, len(tables.steps))
    parts = [struct.pack("<IIIIB", *counts, VALUES.index(tables.values))]
    parts += [_loop(step) if isinstance(step, Loop) else _step(step) for step in tables.steps]
    results = tables.results
    parts += [struct.pack("<I", results[0]), encoded(zigzag(np.diff(results) - 1))]
    return b"".join(parts)


def _step(step: Step) -> bytes:
    biased, scaled = bool(np.any(step.bias)), bool(np.any(step.scale != 1))
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


def _loop(loop: Loop) -> bytes:
    biased, scaled = bool(np.any(loop.bias)), bool(np.any(loop.scale != 1))
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
