"""The examples for other training loops run, and plain PyTorch loads what they write."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.filterwarnings("ignore")  # those of the frameworks are not ours


def ran(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    path = EXAMPLES / name
    assert len(path.read_text().splitlines()) <= 40
    monkeypatch.setattr(sys, "argv", [name, str(folder)])
    torch.manual_seed(0)
    return runpy.run_path(str(path))


def test_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytorch_lightning")
    found = ran("lightning_prune.py", tmp_path, monkeypatch)
    assert found["kept"] == found["pruning"].pruner.kept == 128


def test_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    found = ran("transformers_prune.py", tmp_path, monkeypatch)
    assert found["kept"] == found["pruning"].pruner.kept < found["pruning"].pruner.total / 4


def test_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate")
    from safetensors.torch import load_file

    found = ran("accelerate_prune.py", tmp_path, monkeypatch)
    fresh = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    fresh.load_state_dict(load_file(tmp_path / "model.safetensors"))
    pruner, masks = found["pruner"], found["pruner"].masks
    assert sum(int((p != 0).sum()) for p in fresh.parameters() if p.ndim > 1) == masks.kept == 128
    # What `save_state` has written is loaded into the same objects, after they have changed.
    for mask in masks.values():
        mask.fill_(True)
    masks.apply(pruner.model)
    pruner.steps = 0
    found["accelerator"].load_state(str(tmp_path / "state"))
    assert (pruner.steps, pruner.kept) == (60, 128)
