"""A C compiler: the machine's, or the one in the ``ziglang`` package."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder

from ...errors import TrellisError

_NATIVE = (("-march=native",), ("-mcpu=native",), ())  # tried in this order
# Where a compiler looks for its parts. An empty entry in these would be the current folder.
_SEARCHED = ("PATH", "COMPILER_PATH", "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class Compiler:
    """How it is called, and what it says of itself."""

    command: tuple[str, ...]
    version: str

    def run(self, arguments: Sequence[str]) -> None:
        """Compile; raises with what the compiler said."""
        done = _quiet([*self.command, *arguments])
        if done.returncode:
            told = (done.stderr or done.stdout).strip().splitlines()
            reason = next((line for line in told if "error" in line), told[0] if told else "")
            raise TrellisError(
                f"{' '.join(self.command)} cannot build the run-time: {reason[:300]}"
            )


@functools.cache
def compiler() -> Compiler:
    """``$CC``, or the first of cc, gcc, clang and ziglang that works."""
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
        "there is no C compiler to build the run-time with: install one (apt-get install gcc, "
        "xcode-select --install), or `pip install ziglang`, which brings its own"
    )


def native_flags() -> tuple[tuple[str, ...], ...]:
    """Flags for this very processor, best first."""
    return _NATIVE


def program(name: str) -> str | None:
    """The path of a program in a folder of ``$PATH``; never one in the current folder.

    An empty or relative entry of ``$PATH`` means the current folder, or one in it.
    """
    found = shutil.which(name, path=_absolute(os.environ.get("PATH", os.defpath)))
    return found if found and os.path.isabs(found) else None


def zig() -> str | None:
    """The path of the compiler that the ``ziglang`` package brings, where it is installed.

    ``python -m ziglang`` would run a ``ziglang.py`` of the current folder instead.
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
