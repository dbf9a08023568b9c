"""System tools that a test needs, or a reason to skip it that names what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

WARNINGS = (
    "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror",
)  # fmt: skip
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def tool(*names: str, package: str | None = None) -> str:
    """The first of these programs that is here; ``package`` is Debian's, where its name differs."""
    for name in names:
        if found := shutil.which(name):
            return found
    missing = f"missing tool: {' or '.join(names)} (apt-get install {package or names[0]})"
    if os.environ.get("TRELLIS_ALL_TOOLS"):  # make test-all
        pytest.fail(missing)
    pytest.skip(missing)


def compiled(sources: Sequence[Path], target: Path, *flags: str, cc: str | None = None) -> Path:
    """Compile C as strictly as it is meant to pass."""
    command = [cc or tool("gcc", "clang", "cc"), *WARNINGS, *flags, "-o", str(target)]
    done = subprocess.run(
        [*command, *map(str, sources), "-lm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:3000]
    return target


def ran(program: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *words], input=text, capture_output=True, text=True, check=False, timeout=120
    )
