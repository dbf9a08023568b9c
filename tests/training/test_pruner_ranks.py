"""Under DistributedDataParallel every process holds the same masks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

import trellis

from .gradual import batch, gradual, network, same, sgd
from .together import REGROW

ROOT = Path(__file__).parents[2]


def together(folder: Path) -> None:
    """Two processes train one model, and leave their states here."""
    paths = os.pathsep.join([str(Path(trellis.__file__).parents[1]), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.training.together", str(rank), folder],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in started:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors


def test_all_processes_hold_the_same_masks(tmp_path: Path) -> None:
    """Those of one process that sees all of the data, whether the pruner was made of the wrapped
    model, or of the model and their group before it was wrapped."""
    together(tmp_path)
    model = network()
    model[1] = nn.Identity()
    pruner, optimizer = gradual(model, regrow=REGROW), sgd(model)
    for step in range(8):
        (x, y), (more, wanted) = (batch(step, 4, rank) for rank in range(2))
        x, y = torch.cat([x, more]), torch.cat([y, wanted])
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        pruner.step()
    for wrapped in (True, False):
        first, second = (load_file(tmp_path / f"{rank}-{wrapped}.safetensors") for rank in range(2))
        assert same(first, second) and int(first["regrown"].sum()) > 0
        assert pruner.masks == {name: first[f"mask.{name}"] for name in pruner.masks}
