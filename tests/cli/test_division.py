"""``trellis tune`` and ``evaluate`` divide recordings as the model's training did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.arms import SMALL
from tests.cli.conftest import Run
from tests.skeleton.folders import fpha_folder
from trellis.cli.data_arguments import fold_for, protocol_for
from trellis.skeleton import Recognizer, load_dataset

LISTED = [
    (f"Subject_{subject}/{action}/{take}", label, "Training" if subject % 2 else "Test")
    for subject in (1, 2, 3)
    for label, action in enumerate(("open_bottle", "pour_milk"))
    for take in (1, 2)
]


@pytest.fixture
def hands(run: Run, tmp_path: Path) -> Path:
    """``fpha``, its copy ``copy.npz``, and ``m``, which never saw ``Subject_2`` and was pruned."""
    fpha_folder(tmp_path / "fpha", LISTED)
    data = load_dataset("fpha:fpha")
    np.savez(
        tmp_path / "copy.npz",
        frames=np.concatenate(data.sequences),
        lengths=[len(frames) for frames in data.sequences],
        labels=data.labels,
        classes=np.array(data.classes),
        joints=np.array(data.layout.joints),
    )
    words = ("--protocol", "subjects", "--fold", "Subject_2", "--epochs", "2")
    ran = run("train", "fpha:fpha", "--out", "dense", *SMALL, *words)
    assert ran.status == 0, ran.err
    assert run("prune", "dense", "--sparsity", "0.5", "--out", "m").status == 0
    return tmp_path


def test_the_protocol_and_the_fold_are_those_of_the_training(run: Run, hands: Path) -> None:
    found = run("evaluate", "m", "--data", "fpha:fpha", "--json").json
    assert (found["protocol"], found["fold"], found["recordings"]) == ("subjects", "Subject_2", 4)
    ran = run("tune", "m", "--data", "fpha:fpha", "--out", "t", "--epochs", "2", "--json")
    assert (ran.json["protocol"], ran.json["fold"]) == ("subjects", "Subject_2")
    other = run("evaluate", "t", "--data", "fpha:fpha", "--fold", "Subject_3", "--json").json
    assert (other["protocol"], other["fold"]) == ("subjects", "Subject_3")


def test_another_division_is_refused_unless_its_fold_is_named(
    run: Run, fails: Callable[..., str], hands: Path
) -> None:
    words = ("--data", "fpha:fpha", "--protocol", "1:1")
    for command in (("evaluate", "m", *words), ("tune", "m", *words, "--out", "t")):
        error = fails(*command)
        assert "trained on fold 'Subject_2' of 'fpha:fpha' by protocol 'subjects'" in error
        assert "has 1:1, whose test recordings it may have seen" in error
    assert not (hands / "t").exists()
    assert run("evaluate", "m", *words, "--fold", "1:1", "--json").json["fold"] == "1:1"
    whole = run("evaluate", "m", *words, "--split", "all", "--json").json
    assert whole["recordings"] == 12 and whole["fold"] is None


def test_data_of_another_kind_is_divided_its_own_way(run: Run, hands: Path) -> None:
    found = run("evaluate", "m", "--data", "npz:copy.npz", "--json").json
    assert found["protocol"] is None and found["fold"] == load_dataset("npz:copy.npz").folds[0].name


def test_the_last_training_on_such_data_counts(hands: Path) -> None:
    data = load_dataset("fpha:fpha", protocol="subjects")
    dense = Recognizer.load("dense")
    later = dense.after(step="tune", source="fpha:moved", fold="Subject_3", protocol="subjects")
    later = later.after(step="tune", source="csv:mine", fold="as given", protocol=None)
    assert fold_for(dense, data, None).name == "Subject_2"
    assert fold_for(later, data, None).name == "Subject_3"
    assert protocol_for(later, "fpha:fpha", None) == "subjects"
    assert protocol_for(later, "csv:other", None) is None
    assert protocol_for(later, "fpha:fpha", "1:1") == "1:1"
