"""Two processes train together, and hold the same masks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

import trellis

ROOT = Path(__file__).parents[2]


def test_two_processes_hold_the_same_masks(tmp_path: Path) -> None:
    for package in ("pytorch_lightning", "transformers", "accelerate"):
        pytest.importorskip(package)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(trellis.__file__).parents[1]), str(ROOT)]),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "-m", "tests.integrations.ranks", str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("lightning", "transformers"):
        first, second = (load_file(tmp_path / f"{name}-{rank}.safetensors") for rank in range(2))
        assert first.keys() == second.keys()
        assert all(bool((tensor == second[key]).all()) for key, tensor in first.items())
        masks = [tensor for key, tensor in first.items() if key.startswith("mask.")]
        kept, total = sum(int(m.sum()) for m in masks), sum(m.numel() for m in masks)
        assert kept == int(total * (1 - {"lightning": 0.9, "transformers": 0.8}[name]) + 1e-6)
