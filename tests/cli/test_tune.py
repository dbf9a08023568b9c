"""``trellis tune``, and pruning and auditing a model that is a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import trellis
from tests.cli.arms import contents, trained  # noqa: F401  (a fixture)
from tests.cli.conftest import Run
from tests.cli.test_train import killed
from trellis.skeleton import Recognizer

X = torch.zeros(1, 4, 18)


@pytest.fixture
def arms(trained: Path, tmp_path: Path) -> Path:  # noqa: F811
    for name in ("arms", "arms.npz", "wave.csv", "point.csv"):
        (tmp_path / name).symlink_to(trained / name)
    return tmp_path


def test_prune_audit_tune(run: Run, arms: Path) -> None:
    ran = run("prune", "arms", "--sparsity", "0.9", "--out", "small", "--masks", "masks")
    assert ran.status == 0, ran.err
    assert "wrote small" in ran.out
    dense, small = Recognizer.load("arms"), Recognizer.load("small")
    masks = trellis.prune(dense.model, X, sparsity=0.9)
    assert trellis.masks_of(small.model) == masks == trellis.Masks.load("masks")
    last = small.history[-1]
    assert (last["step"], last["kept"], last["method"]) == ("prune", masks.kept, "closed")
    assert run("audit", "small", "--fail-under", "1", "--json").json["kept"] == masks.kept

    ran = run("tune", "small", "--data", "npz:arms.npz", "--out", "tuned", "--epochs", "30")
    assert ran.status == 0, ran.err
    tuned = Recognizer.load("tuned")
    assert [step["step"] for step in tuned.history] == ["train", "prune", "tune"]
    assert trellis.masks_of(tuned.model) == masks
    assert tuned.normalization == dense.normalization
    before = masks.plain_state_dict(small.model)
    for name, weight in masks.plain_state_dict(tuned.model).items():
        assert torch.equal((weight != before[name]) & ~masks[name], torch.zeros_like(masks[name]))
        assert (weight != before[name])[masks[name]].float().mean() > 0.9
    assert run("audit", "tuned", "--fail-under", "1").status == 0
    # The dense model is as it was.
    assert not any("masks:" in name for name in os.listdir("arms"))
    with pytest.raises(trellis.TrellisError, match="no masks"):
        trellis.masks_of(Recognizer.load("arms").model)


def test_killed_and_called_again(run: Run, arms: Path) -> None:
    assert run("prune", "arms", "--sparsity", "0.5", "--out", "small").status == 0
    words = ("small", "--data", "npz:arms.npz", "--epochs", "500", "--device", "cpu")
    assert run("tune", *words, "--out", "whole").status == 0
    killed(arms, "tune", *words, "--out", "tuned")
    assert run("tune", *words, "--out", "tuned", "--json").json["resumed"]
    assert contents(arms / "tuned") == contents(arms / "whole")


def test_a_dense_model_is_trained_further(run: Run, arms: Path) -> None:
    ran = run("tune", "arms", "--data", "npz:arms.npz", "--out", "more", "--epochs", "3")
    assert ran.status == 0, ran.err
    assert [step["step"] for step in Recognizer.load("more").history] == ["train", "tune"]


def test_a_network_alone_can_be_pruned_too(run: Run, arms: Path) -> None:
    """Saved from Python, without what it expects as input."""
    trellis.save(Recognizer.load("arms").model, "bare", notes={"mine": 1})
    assert run("prune", "bare", "--sparsity", "0.9", "--out", "small").status == 0
    assert trellis.audit(trellis.load("small"), X).live_fraction == 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("prune arms --sparsity 0.9 --out arms", "'arms' holds a finished model"),
        ("prune arms --sparsity 0.9 --weights w", "--weights: the folder 'arms' has weights"),
        ("prune . --sparsity 0.9", "'.' holds no model: there is no model.json in it"),
        ("prune gone --sparsity 0.9", "or the folder of a saved one"),
        ("prune other --sparsity 0.9", "does not say its architecture; name the model instead"),
        ("audit .", "'.' holds no model"),
        ("tune gone --data npz:arms.npz --out t", "there is no folder 'gone'"),
        ("tune arms --data npz:arms.npz --out arms", "holds a finished model"),
        ("tune arms --data npz:gone.npz --out t", "gone.npz"),
        ("tune arms --data npz:arms.npz --out t --epochs 0", "--epochs 0"),
    ],
)
def test_nonsense_is_one_line(
    fails: Callable[..., str], arms: Path, words: str, message: str
) -> None:
    trellis.save(nn.Linear(2, 1), arms / "other")
    assert message in fails(*words.split())


def test_overwriting_ones_own_folder_when_asked(run: Run, arms: Path) -> None:
    Recognizer.load("arms").save("mine")
    assert run("prune", "mine", "--sparsity", "0.9", "--out", "mine", "--overwrite").status == 0
    assert trellis.masks_of(Recognizer.load("mine").model).sparsity > 0.89


def test_it_learns_from_other_models(run: Run, arms: Path) -> None:
    assert run("prune", "arms", "--sparsity", "0.9", "--out", "small").status == 0
    words = ("tune", "small", "--data", "npz:arms.npz", "--epochs", "5")
    told = ("--teacher", "arms", "--teacher-weight", "0.5")
    for out, more in (("alone", ()), ("taught", told)):
        ran = run(*words, *more, "--out", out)
        assert ran.status == 0, ran.err
    assert contents(Path("alone")) != contents(Path("taught"))
    last = Recognizer.load("taught").history[-1]
    assert last["teacher"] == ["arms"] and last["taught"]["weight"] == 0.5
    assert run("report", "taught", "--out", "page.html").status == 0
    command = "--teacher arms --teacher-weight 0.5 --temperature 2"
    assert command in Path("page.html").read_text()
    for wrong, said in (
        (("--teacher", "gone"), "there is no folder 'gone'"),
        (("--teacher", "arms", "--teacher-weight", "2"), "got weight=2.0"),
        (("--teacher", "arms", "--temperature", "0"), "temperature=0.0"),
        (("--teacher-weight", "0.5"), "--teacher-weight 0.5 needs a teacher"),
        (("--temperature", "3"), "--temperature 3 needs a teacher"),
    ):
        refused = run(*words, *wrong, "--out", "x")
        assert refused.status == 2 and said in refused.err
    assert not Path("x").exists()
