"""The native library: built once from the packaged source, then loaded."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import tempfile
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from ...errors import TrellisError
from ...files import replacing
from .cache import folder, private
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
    path = built()
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:  # a file system that lets nothing be run, say
        raise TrellisError(
            f"the run-time {str(path)!r} cannot be loaded ({error}): set XDG_CACHE_HOME to another "
            "folder that is yours alone"
        ) from None
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

    Its name has a hash of source, compiler, flags and processor, so that a cache which several
    machines share never hands out code for another one; and one of its content, so that a damaged
    file is never loaded. That, or one that somebody else could have written, is built again.
    """
    texts = {name: _packaged(name) for name in (*SOURCES, *HEADERS)}
    made_by = compiler()
    about = [*sorted(texts.items()), made_by, FLAGS, native_flags(), _processor()]
    name = f"kernel-{hashlib.sha256(repr(about).encode()).hexdigest()[:24]}"
    for path in folder().glob(f"{name}-*.so"):
        if _sound(path):
            return path
        with suppress(OSError):
            path.unlink()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for file, text in texts.items():
                Path(scratch, file).write_text(text, encoding="utf-8")
            _compile(Path(scratch), Path(scratch, "kernel.so"))
            content = Path(scratch, "kernel.so").read_bytes()
    except OSError as error:
        raise TrellisError(
            f"cannot build the run-time in {tempfile.gettempdir()!r}: {error.strerror or error}"
        ) from error
    target = folder() / f"{name}-{_digest(content)}.so"
    with replacing(target) as [draft]:
        draft.write_bytes(content)
    target.chmod(0o600)  # whatever umask says
    return target


def _sound(path: Path) -> bool:
    """Whether it is a whole file of this user's that nobody else may write to."""
    try:
        return (
            not path.is_symlink()
            and path.is_file()
            and private(path)
            and path.stem.endswith(f"-{_digest(path.read_bytes())}")
        )
    except OSError:
        return False


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]


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
