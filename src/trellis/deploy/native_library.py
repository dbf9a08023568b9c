"""The native library: find a C compiler, build the packaged source once, load it."""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.resources import files
from pathlib import Path

from ..errors import TrellisError
from ..files import replacing

# The cache of built kernels: a folder that only its user may write to.


def folder() -> Path:
    """Return ``$XDG_CACHE_HOME/trellis``, or a temporary folder if that cannot be trusted.

    Code is loaded from there. So a folder that another user owns, may write to or may replace is
    not used. Without a home folder, the temporary one is used.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        path = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "trellis"
        if path.is_absolute():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if private(path) and _firm(path) and os.access(path, os.W_OK):
                return path
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        pass
    return _temporary()


def private(path: Path) -> bool:
    """Return whether this user owns it and no other user may write to it."""
    if not hasattr(os, "getuid"):
        return True
    found = path.stat()
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _firm(path: Path) -> bool:
    """Return whether no folder above lets every user move it; sticky ones, such as /tmp, do not."""
    modes = (parent.stat().st_mode for parent in path.resolve().parents)
    return os.name == "nt" or all(not mode & stat.S_IWOTH or mode & stat.S_ISVTX for mode in modes)


@functools.cache
def _temporary() -> Path:
    try:
        path = Path(tempfile.mkdtemp(prefix="trellis-")).absolute()
    except OSError as error:
        raise TrellisError(
            f"no folder to build the run-time in ({error.strerror or error}); set XDG_CACHE_HOME "
            "to a folder that only you can write to"
        ) from None
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


# The C compiler: the machine's, or that of the ``ziglang`` package.


_NATIVE = (("-march=native",), ("-mcpu=native",), ())  # tried in this order
# Where a compiler looks for its parts. An empty entry would mean the current folder.
_SEARCHED = ("PATH", "COMPILER_PATH", "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class Compiler:
    """The command of a compiler, and its version."""

    command: tuple[str, ...]
    version: str

    def run(self, arguments: Sequence[str]) -> None:
        """Compile; raise with the compiler's message."""
        done = _quiet([*self.command, *arguments])
        if done.returncode:
            told = (done.stderr or done.stdout).strip().splitlines()
            reason = next((line for line in told if "error" in line), told[0] if told else "")
            raise TrellisError(
                f"{' '.join(self.command)} cannot build the run-time: {reason[:300]}"
            )


@functools.cache
def compiler() -> Compiler:
    """Return ``$CC``, or the first of cc, gcc, clang and ziglang that works."""
    given = os.environ.get("CC", "").strip()
    for command in [_words(given)] if given else _candidates():
        done = _quiet([*command, "--version"])
        if done.returncode == 0:
            return Compiler(tuple(command), done.stdout.strip())
        if given:
            told = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            raise TrellisError(
                f"CC={given!r}: expected a C compiler, and `{given} --version` failed "
                f"({told[0][:200]}); set CC to one, such as gcc, or unset it"
            )
    raise TrellisError(
        "no C compiler found to build the run-time; install one (apt-get install gcc, "
        "xcode-select --install), or `pip install ziglang`, which includes one"
    )


def native_flags() -> tuple[tuple[str, ...], ...]:
    """Return the flags for this processor, best first."""
    return _NATIVE


def program(name: str) -> str | None:
    """Return the path of a program in ``$PATH``; never one in the current folder.

    An empty or relative entry of ``$PATH`` means the current folder, or one in it.
    """
    found = shutil.which(name, path=_absolute(os.environ.get("PATH", os.defpath)))
    return found if found and os.path.isabs(found) else None


def zig() -> str | None:
    """Return the path of the compiler in the ``ziglang`` package, or None if not installed.

    ``python -m ziglang`` could run a ``ziglang.py`` of the current folder instead.
    """
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it was removed
        here = None
    folders = [each for each in sys.path if os.path.isabs(each) and os.path.realpath(each) != here]
    found = PathFinder.find_spec("ziglang", folders)
    for folder in (found and found.submodule_search_locations) or ():
        path = os.path.join(folder, "zig.exe" if os.name == "nt" else "zig")
        if os.path.isfile(path):
            return path
    return None


def _words(given: str) -> list[str]:
    try:
        return shlex.split(given)
    except ValueError as error:
        raise TrellisError(
            f"CC={given!r}: expected a command, got one that cannot be split into words ({error}); "
            "set CC to a C compiler, such as gcc, or unset it"
        ) from None


def _candidates() -> list[list[str]]:
    found = [[path] for name in ("cc", "gcc", "clang") if (path := program(name))]
    if path := zig():
        found.append([path, "cc"])
    return found


def _quiet(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    searched = {name: _absolute(os.environ[name]) for name in _SEARCHED if name in os.environ}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
            timeout=300, env={**os.environ, **searched},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def _absolute(folders: str) -> str:
    """
    >>> _absolute(os.pathsep.join(["", "bin", os.path.abspath("/bin"), "."])) == "/bin"
    True
    """
    return os.pathsep.join(each for each in folders.split(os.pathsep) if os.path.isabs(each))


SOURCES = ("native.c", "reader.c", "plan.c", "single.c", "lanes.c", "whole.c")
HEADERS = (
    "activation.h", "bits.h", "chunk.h", "cosine.h", "finite.h", "follow.h", "fours.h", "half.h",
    "int8.h", "int8_loops.h", "int8_rows.h", "int8_wide.h", "kernel.h", "lanes.h", "loop_reader.h",
    "loops.h", "native.h", "plan.h", "reader.h", "real.h", "size.h", "sums.h", "tables.h", "turn.h",
    "whole.h", "wide.h",
)  # fmt: skip
FLAGS = ("-std=gnu99", "-O3", "-fPIC", "-shared", "-fvisibility=hidden")


@functools.cache
def library() -> ctypes.CDLL:
    """Load the library and declare the types of its functions."""
    path = built()
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:  # such as a file system mounted noexec
        raise TrellisError(
            f"the run-time {str(path)!r} cannot be loaded ({error}); set XDG_CACHE_HOME to another "
            "folder that only you can write to"
        ) from None
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    declared: dict[str, tuple[object, list[object]]] = {
        "trellis_open": (pointer, [ctypes.c_char_p, size, ctypes.c_char_p, size]),
        "trellis_close": (None, [pointer]),
        "trellis_inputs": (ctypes.c_uint32, [pointer]),
        "trellis_outputs": (ctypes.c_uint32, [pointer]),
        "trellis_scratch": (size, [pointer, size]),
        "trellis_checked": (ctypes.c_int, [pointer, pointer, size, pointer, pointer]),
        "trellis_recorded": (
            ctypes.c_int,
            [pointer, size, size, size, pointer, size, ctypes.c_float, *[pointer] * 3, size,
             ctypes.c_float, pointer, pointer, ctypes.c_int],
        ),
    }  # fmt: skip
    for name, (result, arguments) in declared.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def built() -> Path:
    """Return the library's file in the user's cache, compiled if it is missing.

    Its name holds a hash of source, compiler, flags and processor, so that machines that share a
    cache never load each other's code. It also holds a hash of the content, so that a damaged file
    is never loaded. A damaged file, or one that another user could have written, is built again.
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
    target.chmod(0o600)  # regardless of the umask
    return target


def _sound(path: Path) -> bool:
    """Return whether it is an undamaged file that only this user may write to."""
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
    return files("trellis.deploy.c").joinpath("source", name).read_text(encoding="utf-8")


def _processor() -> str:
    """What this processor can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    told = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU"))]
    return "\n".join(dict.fromkeys(told))
