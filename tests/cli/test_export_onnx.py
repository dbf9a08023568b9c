"""``trellis export onnx``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import trellis
from tests.cli.conftest import Run
from trellis.skeleton import GCN

pytest.importorskip("onnxscript", reason="needs onnx: pip install 'trellis-prune[onnx]'")
DEAD = "tests.cli.models:half_dead"


def test_a_factory(run: Run, tmp_path: Path) -> None:
    ran = run("export", "onnx", DEAD, "--input", "1x2", "--out", "model.onnx")
    assert ran.status == 0 and (tmp_path / "model.onnx").is_file()
    assert "units" in ran.out and "wrote model.onnx" in ran.out
    assert "trellis export c" in ran.out  # when that is the faster one


def test_the_json(run: Run) -> None:
    ran = run("export", "onnx", DEAD, "--input", "1x2", "--out", "model.onnx", "--json")
    assert ran.json["path"] == "model.onnx" and ran.json["batched"] is True
    assert ran.json["difference"] < 1e-5
    sizes = ran.json["compaction"]
    assert (sizes["before"]["connections"], sizes["after"]["connections"]) == (6, 3)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_folder_brings_its_inputs(run: Run, tmp_path: Path, compacted: bool) -> None:
    gcn = GCN(nodes=3, channels=6, classes=4, heads=2, filters=5)
    trellis.prune(gcn, torch.zeros(1, 3, 6), sparsity=0.6)
    model = trellis.compact(gcn, torch.zeros(1, 3, 6)) if compacted else gcn
    trellis.save(model, tmp_path / "hands")
    assert run("export", "onnx", "hands", "--out", "hands.onnx").status == 0
    assert (tmp_path / "hands.onnx").is_file()


def test_mistakes(fails: Callable[..., str]) -> None:
    assert "there is no folder" in fails("export", "onnx", DEAD, "--out", "no/model.onnx")
    assert "--input" in fails("export", "onnx", DEAD, "--out", "model.onnx")
