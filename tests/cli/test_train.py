"""``trellis train``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import trellis
from tests.cli.arms import SMALL, SOURCE, contents
from tests.cli.conftest import Run
from tests.skeleton.moving import arms, write_npz
from trellis.skeleton import Recognizer, evaluated, fit, load_dataset
from trellis.training import recipe_named

TRAIN = ("train", SOURCE, "--out", "m", *SMALL)
FILES = ["model.json", "model.safetensors"]


@pytest.fixture(autouse=True)
def _recordings(tmp_path: Path) -> None:
    write_npz(tmp_path / "arms.npz", arms())


def test_the_folder_holds_what_fit_gives(run: Run, tmp_path: Path) -> None:
    ran = run(*TRAIN, "--epochs", "30", "--seed", "5")
    assert ran.status == 0, ran.err
    assert sorted(os.listdir(tmp_path / "m")) == FILES
    data = load_dataset(SOURCE)
    (fold,) = data.folds
    fresh = Recognizer.fresh(data, fold, chunks=6, seed=5, heads=3, filters=8)
    expected = fit(fresh, data, fold, recipe_named("default", epochs=30), seed=5)
    saved = Recognizer.load("m")
    for name, weight in expected.model.state_dict().items():
        assert torch.equal(saved.model.state_dict()[name], weight)
    top1 = evaluated(saved, data, fold.test).top1
    assert saved.history[0]["metrics"]["top1"] == top1
    spent = (saved.history[0]["hardware"], expected.history[0]["hardware"])
    assert spent[0] == spent[1] != "" and saved.history[0]["seconds"] >= 0
    assert spent[0] in ran.out
    for text in ("top-1", "mean-class", "training", "36 + 12", "wrote m", "one seed (5)"):
        assert text in ran.out
    assert ran.err.startswith("training: epoch 1 of ")


def test_json_and_every_option(run: Run) -> None:
    words = "--blocks 2 --shared --combine sum --bias --bones limit --activation abs"
    words += " --recipe paper --epochs 3"
    ran = run(*TRAIN, *words.split(), "--device", "cpu", "--fold", "1", "--json")
    assert ran.status == 0, ran.err
    assert ran.json["metrics"].keys() == {"top1", "mean_class", "train_top1"}
    assert ran.json["recipe"]["name"] == "paper" and ran.json["out"] == "m"
    model = Recognizer.load("m").model
    assert model.sizes == {
        "nodes": 4, "channels": 18, "classes": 3, "heads": 3, "filters": 8, "blocks": 2,
        "shared": True, "combine": "sum", "bias": True, "activation": "abs",
    }  # fmt: skip
    attention = model.get_parameter("blocks.1.attention").detach()
    bones = torch.from_numpy(load_dataset(SOURCE).layout.adjacency()) != 0
    assert (attention[:, ~bones] == 0).all() and (attention[:, bones] != 0).all()
    assert ran.json["bones"] == "limit"


@pytest.mark.parametrize(
    ("words", "origin"),
    [
        ("--recipe paper", "frame"),
        ("--recipe paper --origin recording", "recording"),
        ("--origin frame", "frame"),
        ("", "recording"),
    ],
)
def test_a_saved_model_has_its_origin(run: Run, tmp_path: Path, words: str, origin: str) -> None:
    ran = run(*TRAIN, *words.split(), "--epochs", "2", "--device", "cpu", "--json")
    assert ran.status == 0, ran.err
    model = Recognizer.load("m")
    assert model.normalization.origin == origin and "origin" not in ran.json["recipe"]
    stored = json.loads((tmp_path / "m/model.json").read_text())
    text = json.dumps(stored["notes"]["recogniser"]["normalisation"])
    assert ("origin" in text) == (origin == "frame")
    assert ran.json["recipe"].get("first_weights") == ("fan-in" if "paper" in words else None)
    tuned = run("tune", "m", "--data", SOURCE, "--epochs", "1", "--recipe", "default",
                "--out", "t", "--device", "cpu")  # fmt: skip
    assert tuned.status == 0 and Recognizer.load("t").normalization == model.normalization


def test_a_finished_model_is_not_overwritten_unasked(
    run: Run, fails: Callable[..., str], tmp_path: Path
) -> None:
    assert run(*TRAIN, "--epochs", "2").status == 0
    before = (tmp_path / "m/model.safetensors").read_bytes()
    assert "'m' holds a finished model: name another folder, or pass --overwrite" in fails(
        *TRAIN, "--epochs", "3"
    )
    assert (tmp_path / "m/model.safetensors").read_bytes() == before
    assert run(*TRAIN, "--epochs", "3", "--overwrite").status == 0
    assert (tmp_path / "m/model.safetensors").read_bytes() != before


def killed(folder: Path, *words: str) -> None:
    """Run a command with a checkpoint after every epoch, and kill it at the second."""
    program = (
        "import sys, trellis.training.checkpoint as c; c.EVERY = 0; "
        "from trellis.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    source = str(Path(trellis.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
    )
    checkpoint = folder / words[words.index("--out") + 1] / ".checkpoint.safetensors"
    seen: set[int] = set()
    try:
        while len(seen) < 2 and process.poll() is None:
            if checkpoint.exists():
                seen.add(checkpoint.stat().st_mtime_ns)
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("recipe", ["default", "paper"])
def test_killed_and_called_again_it_ends_with_the_same_model(
    run: Run, tmp_path: Path, recipe: str
) -> None:
    words = (SOURCE, *SMALL, "--recipe", recipe, "--epochs", "500", "--device", "cpu")
    assert run("train", *words, "--out", "whole").status == 0
    killed(tmp_path, "train", *words, "--out", "m")
    assert not (tmp_path / "m/model.json").exists()
    with safe_open(tmp_path / "m/.checkpoint.safetensors", framework="pt") as file:
        before = json.loads(file.metadata()["trellis.checkpoint"])["seconds"]
    ran = run("train", *words, "--out", "m", "--json")
    assert ran.status == 0, ran.err
    assert ran.json["resumed"]
    assert sorted(os.listdir(tmp_path / "m")) == FILES
    assert contents(tmp_path / "m") == contents(tmp_path / "whole")
    # What came before it was killed is part of its time, which is told to a tenth.
    assert 0 < before < Recognizer.load("m").history[-1]["seconds"] + 0.05


def test_other_arguments_do_not_go_on_where_these_stopped(
    run: Run, fails: Callable[..., str], tmp_path: Path
) -> None:
    words = ("train", SOURCE, *SMALL, "--epochs", "500", "--device", "cpu", "--out", "m")
    killed(tmp_path, *words)
    error = fails(*words, "--recipe", "paper")
    assert "'m/.checkpoint.safetensors' is of another training" in error
    assert "recipe.name was 'default' and is 'paper'" in error
    assert "begun with was" in fails(*words, "--seed", "1") or "seeds" in fails(
        *words, "--seed", "1"
    )
    write_npz(tmp_path / "arms.npz", arms(seed=1))
    assert "recordings was" in fails(*words)


def test_synthetic_data_is_called_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    made_up = dataclasses.replace(arms(), source="hands45", synthetic=True)
    monkeypatch.setattr("trellis.skeleton.load_dataset", lambda *_, **__: made_up)
    ran = run("train", "hands45", "--out", "m", *SMALL, "--epochs", "2")
    assert "hands45 (synthetic)" in ran.out
    assert Recognizer.load("m").synthetic
    assert "hands45 (synthetic)" in run("evaluate", "m", "--data", "hands45").out


def test_what_is_skipped_is_counted(run: Run, fails: Callable[..., str], tmp_path: Path) -> None:
    for label in ("wave", "point"):
        (tmp_path / "csv" / label).mkdir(parents=True)
        for i in range(4):
            rows = np.random.default_rng(i).normal(size=(9, 6))
            text = "\n".join(",".join(map(str, row)) for row in rows.tolist())
            (tmp_path / "csv" / label / f"{i}.csv").write_text(text + "\n")
    (tmp_path / "csv/wave/0.csv").write_text("1,2,nan,4,5,6\n")
    words = ("train", "csv:csv", "--out", "m", *SMALL, "--epochs", "2")
    assert "csv/wave/0.csv" in fails(*words)
    ran = run(*words, "--skip-bad")
    assert ran.status == 0, ran.err
    assert "\nleft out: 1\n" in ran.out and "wave/0.csv" in ran.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--epochs 0", "--epochs 0: expected a whole number of at least 1"),
        ("--heads 0", "heads=0 is not a whole number"),
        ("--chunks 0", "chunks=0 is not a whole number"),
        ("--device meta", "--device 'meta': expected auto, cpu, cuda or cuda:N"),
        ("--device cpu --precision tf32", "--precision tf32 needs a GPU"),
        ("--fold 2", "--fold '2': 'npz:arms.npz' has "),
        ("--fold nobody", "give a name or 1 to 1"),
        ("--protocol subjects", "unknown protocol='subjects' for npz"),
        ("--out arms.npz", "cannot write"),
        ("--out gone/m", "there is no folder 'gone'"),
    ],
)
def test_nonsense_is_one_line(fails: Callable[..., str], words: str, message: str) -> None:
    given = TRAIN if "--out" not in words else ("train", SOURCE, *SMALL)
    assert message in fails(*given, *words.split())


def test_a_source_that_is_none(fails: Callable[..., str]) -> None:
    assert "unknown source 'video:x'" in fails("train", "video:x", "--out", "m")
