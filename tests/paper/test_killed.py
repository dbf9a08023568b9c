"""Killed at random moments, a run ends with the table of one that was not."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

import trellis

ROOT = Path(trellis.__file__).parents[2]
KILLS = 5


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
def test_a_killed_run_ends_with_the_same_table(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.paper.killed", str(tmp_path), str(seed), str(KILLS)],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) == KILLS, f"seed {seed}: it finished between the kills"
    names = sorted(p.name for p in (tmp_path / "whole").iterdir() if not p.is_dir())
    assert {"table.txt", "table.md", "table.csv", "table.tex"} <= set(names)
    for name in names:
        if name.startswith("table") or name == "settings.json":
            whole, killed = (tmp_path / run / name for run in ("whole", "killed"))
            assert whole.read_bytes() == killed.read_bytes(), f"seed {seed}: {name}"
    dense = sorted((tmp_path / "whole" / "dense").iterdir())
    assert dense
    for path in dense:
        assert path.read_bytes() == (tmp_path / "killed" / "dense" / path.name).read_bytes()
