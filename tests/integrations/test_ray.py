"""On a Ray cluster everything is as it is on one machine, also if a node dies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trellis
from tests.paper.test_killed import same

ROOT = Path(trellis.__file__).parents[2]


def test_a_table_and_a_search_survive_a_dead_node(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra [ray]")
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    ran = subprocess.run(
        [sys.executable, "-m", "tests.integrations.on_cluster", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    same(tmp_path / "whole", tmp_path / "spread")
