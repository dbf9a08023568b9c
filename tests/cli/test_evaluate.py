"""``trellis evaluate``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.arms import trained  # noqa: F401  (a fixture)
from tests.cli.conftest import Run
from tests.skeleton.moving import ARM, arms, write_csv, write_npz
from trellis.skeleton import Fold, Recognizer, evaluated, load_dataset, read_recording


@pytest.fixture(autouse=True)
def _here(trained: Path, tmp_path: Path) -> None:  # noqa: F811
    for name in ("arms", "arms.npz", "wave.csv", "point.csv"):
        (tmp_path / name).symlink_to(trained / name)
    write_npz(tmp_path / "noisy.npz", arms(60, seed=3, noise=3.0))


def test_accuracies_classes_and_confusions(run: Run) -> None:
    ran = run("evaluate", "arms", "--data", "npz:noisy.npz", "--split", "all")
    assert ran.status == 0, ran.err
    data = load_dataset("npz:noisy.npz")
    found = evaluated(Recognizer.load("arms"), data, np.arange(len(data)))
    assert 0.3 < found.top1 < 0.95  # or there would be nothing to confuse
    worst = found.confusions()[0]
    lines = [line.split() for line in ran.out.splitlines()]
    assert [worst.truth, worst.taken_for, str(worst.count), str(worst.of)] in lines
    assert ["all", "60", str(int(np.trace(found.matrix)))] == next(
        line[:3] for line in lines if line[:1] == ["all"]
    )
    pairs = lines[lines.index(["class", "taken", "for", "times", "of"]) + 2 :]
    counts = [int(line[2]) for line in pairs if len(line) == 4]
    assert counts == sorted(counts, reverse=True) and len(counts) == len(found.confusions())
    assert "top-1" in ran.out and "mean-class" in ran.out


def test_json(run: Run) -> None:
    found = run("evaluate", "arms", "--data", "npz:arms.npz", "--json").json
    saved = Recognizer.load("arms").history[0]["metrics"]
    assert (found["top1"], found["mean_class"]) == (saved["top1"], saved["mean_class"])
    assert found["recordings"] == 12 and found["split"] == "test"
    assert {row["name"] for row in found["classes"]} == {"wave", "point", "grab"}
    train = run("evaluate", "arms", "--data", "npz:arms.npz", "--split", "train", "--json").json
    assert train["top1"] == saved["train_top1"] and train["recordings"] == 36


def test_few_confusions_on_request(run: Run) -> None:
    words = ("evaluate", "arms", "--data", "npz:noisy.npz", "--split", "all")
    assert "more pairs (--top " in run(*words, "--top", "1").out


def test_the_fold_is_the_models_own(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would be tested on what they have seen."""
    data = arms()
    own = Recognizer.load("arms").history[0]["fold"]
    every = np.arange(len(data))
    folds = (Fold("first", every[10:], every[:10]), Fold(own, every[:40], every[40:]))
    several = dataclasses.replace(data, source="npz:arms.npz", folds=folds)
    monkeypatch.setattr("trellis.skeleton.load_dataset", lambda *_, **__: several)
    words = ("evaluate", "arms", "--data", "npz:arms.npz", "--json")
    assert run(*words).json["fold"] == own
    assert run(*words, "--fold", "first").json["fold"] == "first"
    assert run(*words, "--fold", "1").json["recordings"] == 10


def test_actions_in_recordings(run: Run) -> None:
    ran = run("evaluate", "arms", "wave.csv", "point.csv", "--json")
    assert ran.status == 0, ran.err
    model = Recognizer.load("arms")
    for found, name in zip(ran.json["recordings"], ("wave", "point"), strict=True):
        frames = read_recording(f"{name}.csv", ARM)
        shares = model.probabilities([frames])[0]
        assert found["file"] == f"{name}.csv" and found["frames"] == len(frames)
        assert list(found["probabilities"].values()) == pytest.approx(sorted(shares)[::-1])
        assert found["action"] == model.classes[shares.argmax()] == name
    shown = run("evaluate", "arms", "wave.csv", "--top", "2").out.splitlines()
    assert shown[2].split()[:2] == ["wave.csv", "wave"] and len(shown) == 4


def test_columns_go_by_name(run: Run, tmp_path: Path) -> None:
    """A recording with its joints in another order is the same recording."""
    turned = dataclasses.replace(
        arms(),
        sequences=tuple(frames[:, [3, 1, 0, 2]] for frames in arms().sequences),
        layout=dataclasses.replace(ARM, joints=tuple(ARM.joints[i] for i in (3, 1, 0, 2))),
    )
    write_csv(tmp_path / "turned.csv", turned, 0)
    one, other = run("evaluate", "arms", "wave.csv", "turned.csv", "--json").json["recordings"]
    assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)


def test_bad_recordings_stop_it_or_are_left_out(
    run: Run, fails: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "bad.csv").write_text("1,2,3\n")
    assert "bad.csv" in fails("evaluate", "arms", "wave.csv", "bad.csv")
    ran = run("evaluate", "arms", "wave.csv", "bad.csv", "--skip-bad", "--json")
    assert [row["file"] for row in ran.json["recordings"]] == ["wave.csv"]
    assert [row["file"] for row in ran.json["left_out"]] == ["bad.csv"]
    ran = run("evaluate", "arms", "wave.csv", "bad.csv", "--skip-bad")
    assert ran.status == 0 and "wave.csv" in ran.out
    assert ran.err.startswith("left out: 1 of 2\n  ") and "bad.csv" in ran.err


def test_nothing_that_can_be_named_is_an_error(fails: Callable[..., str], tmp_path: Path) -> None:
    """As with --data: a check that looks at the exit status must not take this for well."""
    (tmp_path / "bad.csv").write_text("1,2,3\n")
    for more in ((), ("--json",)):
        error = fails("evaluate", "arms", "bad.csv", "gone.csv", "--skip-bad", *more)
        assert "no recordings to name; 2 of 2 left out: " in error and "bad.csv" in error


def test_a_file_given_twice_is_named_twice(run: Run, tmp_path: Path) -> None:
    files = ("wave.csv", "point.csv", "wave.csv")
    found = run("evaluate", "arms", *files, "--json").json["recordings"]
    assert [row["file"] for row in found] == list(files)
    assert found[0] == found[2] != found[1]
    shown = run("evaluate", "arms", *files, "--top", "1").out.splitlines()
    assert [line.split()[0] for line in shown if ".csv" in line] == list(files)
    (tmp_path / "bad.csv").write_text("1,2,3\n")
    ran = run("evaluate", "arms", "bad.csv", *files, "bad.csv", "--skip-bad")
    assert ran.err.startswith("left out: 2 of 5\n")


def test_data_of_another_skeleton(fails: Callable[..., str], tmp_path: Path) -> None:
    data = arms()
    three = dataclasses.replace(
        data,
        sequences=tuple(frames[:, :3] for frames in data.sequences),
        layout=dataclasses.replace(ARM, joints=ARM.joints[:3], parents=ARM.parents[:3]),
    )
    write_npz(tmp_path / "three.npz", three)
    error = fails("evaluate", "arms", "--data", "npz:three.npz")
    assert "has 3 joints" in error and "trained on 4" in error
    other = dataclasses.replace(data, classes=("wave", "clap", "grab"))
    write_npz(tmp_path / "clap.npz", other)
    assert "'clap', which the model does not know" in fails(
        "evaluate", "arms", "--data", "npz:clap.npz"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("arms", "expected either --data SOURCE or files"),
        ("arms wave.csv --data npz:arms.npz", "expected either --data SOURCE or files"),
        ("gone wave.csv", "there is no folder 'gone'"),
        ("arms gone.csv", "gone.csv"),
        ("arms --data npz:arms.npz --top 0", "--top 0"),
        ("arms --data npz:arms.npz --fold 9", "--fold '9'"),
        ("arms --data npz:arms.npz --fold 9 --split all", "--fold '9'"),
        ("arms --data npz:arms.npz --split half", "--split 'half': expected test, train or all"),
        ("arms wave.csv --fold 3", "--fold '3' is for --data: leave it out with files"),
        ("arms wave.csv --protocol 4", "--protocol '4' is for --data"),
        ("arms wave.csv --split test", "--split 'test' is for --data"),
    ],
)
def test_nonsense_is_one_line(fails: Callable[..., str], words: str, message: str) -> None:
    assert message in fails("evaluate", *words.split())


def test_a_model_of_the_hub(run: Run, fails: Callable[..., str]) -> None:
    pytest.importorskip("huggingface_hub")
    local = run("evaluate", "arms", "wave.csv", "--json")
    ran = run("evaluate", "hf:arms", "wave.csv", "--json")
    assert ran.out == local.out, ran.err
    assert "there/is/none" in fails("evaluate", "hf:there/is/none", "wave.csv")
