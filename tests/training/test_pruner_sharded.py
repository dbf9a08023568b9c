"""Under `fully_shard` all processes together hold the masks that one process would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trellis
from trellis.errors import TrellisError

from .gradual import example, network

ROOT = Path(__file__).parents[2]


def together(folder: Path, count: int) -> None:
    paths = os.pathsep.join([str(Path(trellis.__file__).parents[1]), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "tests.training.sharded"]
    started = [
        subprocess.Popen(
            [*words, str(rank), str(count), folder],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(count)
    ]  # fmt: skip
    try:
        for process in started:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
    finally:
        for process in started:  # the others may wait for one that failed
            process.kill()
            process.wait()


def test_processes_choose_and_resume_as_one_does(tmp_path: Path) -> None:
    """Two processes, and then four that continue from their checkpoint."""
    together(tmp_path, 2)
    assert (tmp_path / "end").exists()
    (tmp_path / "meeting").unlink(missing_ok=True)
    together(tmp_path, 4)


def test_hidden_parameters_are_refused_with_an_alternative() -> None:
    partitioned: Any = network()
    partitioned[3].weight.ds_id = 7  # as DeepSpeed marks those that it partitions
    with pytest.raises(TrellisError, match=r"'3\.weight' is partitioned by DeepSpeed.*fully_shard"):
        trellis.audit(partitioned, example())

    class FullyShardedDataParallel(nn.Module):  # as torch names its first version
        def __init__(self) -> None:
            super().__init__()
            self.module = network()

        def forward(self, x: torch.Tensor) -> Any:
            return self.module(x)

    with pytest.raises(TrellisError, match=r"FSDP1.*fully_shard"):
        trellis.prune(FullyShardedDataParallel(), example(), sparsity=0.5)
