"""The native library: built once from the packaged source, then loaded."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import tempfile
from importlib.resources import files
from pathlib import Path

from ...errors import TrellisError
from ...files import replacing
from .cache import folder
from .compiler import compiler, native_flags

SOURCES = ("native.c", "reader.c", "plan.c", "single.c", "lanes.c")
HEADERS = (
    "activation.h", "bits.h", "chunk.h", "cosine.h", "fours.h", "half.h", "kernel.h", "lanes.h",
    "native.h", "plan.h", "reader.h", "real.h", "size.h", "sums.h", "tables.h", "turn.h", "wide.h",
)  # fmt: skip
FLAGS = ("-std=gnu99", "-O3", "-fPIC", "-shared", "-fvisibility=hidden")


@functools.cache
def library() -> ctypes.CDLL:
    """The library with the types of its functions declared."""
    found = ctypes.CDLL(str(built()))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    declared: dict[str, tuple[object, list[object]]] = {
        "trellis_open": (pointer, [ctypes.c_char_p, size, ctypes.c_char_p, size]),
        "trellis_close": (None, [pointer]),
        "trellis_inputs": (ctypes.c_uint32, [pointer]),
        "trellis_outputs": (ctypes.c_uint32, [pointer]),
        "trellis_scratch": (size, [pointer, size]),
        "trellis_predict": (None, [pointer, pointer, size, pointer, pointer]),
        "trellis_recorded": (
            ctypes.c_int,
            [pointer, size, size, size, pointer, size, ctypes.c_float, *[pointer] * 3, size,
             ctypes.c_float, pointer, pointer],
        ),
    }  # fmt: skip
    for name, (result, arguments) in declared.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def built() -> Path:
    """The library's file in the user's cache, compiled if it is not there yet.

    Its name is a hash of source, compiler, flags and processor, so that a cache which several
    machines share never hands out code for another one.
    """
    texts = {name: _packaged(name) for name in (*SOURCES, *HEADERS)}
    made_by = compiler()
    about = [*sorted(texts.items()), made_by, FLAGS, native_flags(), _processor()]
    name = hashlib.sha256(repr(about).encode()).hexdigest()[:24]
    target = folder() / f"kernel-{name}.so"
    if not target.is_file():
        with replacing(target) as [draft], tempfile.TemporaryDirectory() as scratch:
            for file, text in texts.items():
                Path(scratch, file).write_text(text, encoding="utf-8")
            _compile(Path(scratch), draft)
    return target


def _compile(source: Path, target: Path) -> None:
    files_ = [str(source / name) for name in SOURCES]
    failure: TrellisError | None = None
    for flags in native_flags():
        try:
            compiler().run([*FLAGS, *flags, "-o", str(target), *files_, "-lm"])
            return
        except TrellisError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _packaged(name: str) -> str:
    return files("trellis.ship.c").joinpath("source", name).read_text(encoding="utf-8")


def _processor() -> str:
    """What this processor can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    told = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU"))]
    return "\n".join(dict.fromkeys(told))
