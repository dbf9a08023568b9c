"""Training that diverges, and models that did: one line, a non-zero status, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.arms import SMALL, SOURCE
from tests.cli.conftest import Fails, Run
from tests.skeleton.moving import arms, write_npz
from tests.test_finite import poison


@pytest.fixture(autouse=True)
def _recordings(tmp_path: Path) -> None:
    write_npz(tmp_path / "arms.npz", arms())


def test_training_that_diverges(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("train", SOURCE, "--out", "m", *SMALL, "--epochs", "2").status == 0
    # The check of the temperature would raise first: switch it off.
    monkeypatch.setattr("trellis.training.distillation.check_distillation", lambda *_: None)
    monkeypatch.setattr("trellis.skeleton.model.fitting.check_distillation", lambda *_: None)
    words = ("--teacher", "m", "--temperature", "1e-40", "--epochs", "3")
    ran = run("train", SOURCE, "--out", "n", *SMALL, *words)
    assert ran.status == 2 and ran.out == ""
    last = ran.err.splitlines()[-1]
    assert last.startswith("trellis: error: training diverged (loss is NaN) by epoch 1,")
    assert not (tmp_path / "n").exists()


def test_models_that_are_not_numbers(run: Run, fails: Fails, tmp_path: Path) -> None:
    assert run("train", SOURCE, "--out", "m", *SMALL, "--epochs", "2").status == 0
    poison(tmp_path / "m", "dense.weight")
    before = sorted(tmp_path.iterdir())
    for words in (
        ("tune", "m", "--data", SOURCE, "--out", "n", "--epochs", "2"),
        ("prune", "m", "--sparsity", "0.5", "--out", "n"),
        ("evaluate", "m", "--data", SOURCE),
        ("audit", "m"),
        ("export", "c", "m", "--out", "n"),
        ("export", "onnx", "m", "--out", "n.onnx"),
        ("export", "wasm", "m", "--out", "n"),
        ("report", "m", "--out", "n.html"),
    ):
        assert "'dense.weight' holds" in fails(*words)
    assert sorted(tmp_path.iterdir()) == before


def test_a_bias_that_is_nan_is_neither_audited_nor_pruned(fails: Fails, tmp_path: Path) -> None:
    words = ("tests.cli.models:nan_bias", "--input", "1x4")
    pruned = (*words, "--sparsity", "0.5", "--out", "o.safetensors", "--masks", "o.masks")
    for said in (fails("audit", *words, "--html", "o.html"), fails("prune", *pruned)):
        assert "'bias' holds 1 value that is not finite (nan)" in said
    assert [path.name for path in tmp_path.iterdir()] == ["arms.npz"]
