"""The fuzzers build and find nothing in a moment; `make fuzz` gives them ten minutes each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trellis
from tests.deploy.tools import tool

ROOT = Path(trellis.__file__).parents[2]


def test_a_moment_of_fuzzing_finds_nothing(tmp_path: Path) -> None:
    script = ROOT / "fuzz" / "run.sh"
    if not script.is_file():
        pytest.skip("the fuzzers are not part of an installed package")
    settings = {
        "CLANG": tool("clang"), "PYTHON": sys.executable, "FUZZ_SECONDS": "3",
        "FUZZ_FOLDER": str(tmp_path / "fuzz"),
    }  # fmt: skip
    done = subprocess.run(
        ["sh", str(script)], env=os.environ | settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("no finding\n")
