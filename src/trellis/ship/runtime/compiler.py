"""A C compiler: the machine's, or the one in the ``ziglang`` package."""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import TrellisError

_NATIVE = (("-march=native",), ("-mcpu=native",), ())  # tried in this order


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
    for command in _candidates():
        done = _quiet([*command, "--version"])
        if done.returncode == 0:
            return Compiler(tuple(command), done.stdout.strip())
    raise TrellisError(
        "there is no C compiler to build the run-time with: install one (apt-get install gcc, "
        "xcode-select --install), or `pip install ziglang`, which brings its own"
    )


def native_flags() -> tuple[tuple[str, ...], ...]:
    """Flags for this very processor, best first."""
    return _NATIVE


def _candidates() -> list[list[str]]:
    if given := os.environ.get("CC"):
        return [shlex.split(given)]
    found = [[path] for name in ("cc", "gcc", "clang") if (path := shutil.which(name))]
    if importlib.util.find_spec("ziglang") is not None:
        found.append([sys.executable, "-m", "ziglang", "cc"])
    return found


def _quiet(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
            timeout=300,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
