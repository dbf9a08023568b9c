"""A disk that is full while saving: one clear error, what was there stays, nothing half-written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import trellis

pytest.importorskip("resource", reason="only Unix limits how large a file may become")

# A file that would grow beyond the limit fails as one on a full disk does.
PROGRAM = """
import resource, signal, sys
import torch, trellis
from trellis.skeleton import GCN

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
masked = torch.nn.Linear(200, 300)
masks = trellis.prune(masked, torch.zeros(1, 200), sparsity=0.5)
for write in (
    lambda: trellis.save(GCN(nodes=9, channels=30, classes=4, heads=2, filters=9), sys.argv[1]),
    lambda: masks.save(sys.argv[2]),
):
    try:
        write()
    except trellis.TrellisError as error:
        print(error)
"""


def test_nothing_stays_but_what_was_there(tmp_path: Path) -> None:
    folder, file = tmp_path / "model", tmp_path / "masks.safetensors"
    layer = nn.Linear(4, 3)
    trellis.prune(layer, torch.zeros(1, 4), sparsity=0.5).save(file)
    before = file.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(file)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert len(told) == 2
    for line in told:
        assert line.startswith("cannot write '") and "File too large" in line
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [file.name]
