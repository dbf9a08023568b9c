"""``trellis export onnx``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trellis
from tests.cli.conftest import Run
from trellis.skeleton import GCN, Channels, Layout, Normalization, Recognizer

pytest.importorskip("onnxscript", reason="needs onnx: pip install 'trellis-prune[onnx]'")
runtime: Any = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
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


@pytest.mark.parametrize(
    "basis, kinds", [("chunks", ("velocity", "bones")), ("cosines", ("coordinates", "bones"))]
)
def test_a_recogniser_tells_what_it_reads(
    run: Run, tmp_path: Path, basis: str, kinds: tuple[str, ...]
) -> None:
    """It reads prepared recordings, whatever channels are made of them, as exported C does."""
    arm = Layout("arm", ("shoulder", "elbow", "hand"), parents=(-1, 0, 1), roots=(0,))
    count = Channels.of(arm, kinds, basis).count(5)
    gcn = GCN(nodes=3, channels=count, classes=2, heads=2, filters=5)
    trellis.prune(gcn, torch.zeros(1, 3, count), sparsity=0.5)
    one = Recognizer(
        gcn, 5, Normalization((0,), 0.5), ("wave", "point"), arm, kinds=kinds, basis=basis
    )
    one.save(tmp_path / "arms")
    ran = run("export", "onnx", "arms", "--out", "arms.onnx")
    assert ran.status == 0, ran.err
    told = " ".join(ran.out.split())
    assert "(batch, 3, 15)" in told and "centred on shoulder and divided by 0.5" in told
    assert ("cosine transform" in told) == (basis == "cosines")

    session = runtime.InferenceSession("arms.onnx", providers=["CPUExecutionProvider"])
    notes = session.get_modelmeta().custom_metadata_map
    assert json.loads(notes["classes"]) == ["wave", "point"]
    assert json.loads(notes["recording"]).get("basis", "chunks") == basis
    moving = [np.random.default_rng(n).normal(size=(n, 3, 3)).astype(np.float32) for n in (3, 40)]
    given = {session.get_inputs()[0].name: one.prepared(moving)}
    found = torch.softmax(torch.from_numpy(session.run(None, given)[0]), 1).numpy()
    np.testing.assert_allclose(found, one.probabilities(moving), atol=1e-6)


def test_mistakes(fails: Callable[..., str]) -> None:
    assert "there is no folder" in fails("export", "onnx", DEAD, "--out", "no/model.onnx")
    assert "--input" in fails("export", "onnx", DEAD, "--out", "model.onnx")
