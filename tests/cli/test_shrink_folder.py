"""The folder of ``trellis shrink``: runs that were killed, begun otherwise, or have no place."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cli.arms import SMALL, SOURCE
from tests.cli.conftest import Run
from tests.skeleton.moving import arms, write_npz
from trellis.errors import TrellisError
from trellis.files import replacing
from trellis.saving.folder import is_saved
from trellis.skeleton import Recognizer, load_dataset
from trellis.skeleton.shrink import run as running

SHRINK = ("shrink", "--data", SOURCE, "--course", "quick", "--length", "0.1", *SMALL)
FILES = ["dense", "model", "report.html"]


@pytest.fixture(autouse=True)
def _recordings(tmp_path: Path) -> None:
    write_npz(tmp_path / "arms.npz", arms())


def tensors(folder: str) -> list[bytes]:
    return [Path(folder, part, "model.safetensors").read_bytes() for part in ("dense", "model")]


@pytest.fixture
def stopped(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a command that ends where some function is called, as if it was killed there."""

    def call(at: str, *words: str) -> None:
        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(at, killed)
            assert run(*words).status == 130

    return call


@pytest.mark.parametrize(
    "at",
    [
        "trellis.skeleton.shrink.run.losses",  # all is trained, nothing is written
        "trellis.cli.shrink._page",  # the models are there, the page is not
        "trellis.cli.shrink.forget",  # the page is there too, and so are checkpoints
    ],
)
def test_killed_at_its_end_it_is_finished_by_the_same_command(
    run: Run, stopped: Callable[..., None], at: str
) -> None:
    words = (*SHRINK, "--keep", "60", "--out")
    assert run(*words, "a").status == 0
    stopped(at, *words, "b")
    assert any(name.startswith(".") for name in os.listdir("b"))
    again = run(*words, "b")
    assert again.status == 0, again.err
    assert "continued a run that was stopped" in again.out
    assert sorted(os.listdir("b")) == FILES and tensors("b") == tensors("a")
    stopped(at, *words, "b", "--overwrite")
    Path("b", ".lock").touch()  # as a process that is killed leaves it
    again = run(*words, "b", "--overwrite")
    assert again.status == 0, again.err
    # Killed when all was written, it is asked for anew.
    assert ("continued a run" in again.out) == (not at.endswith("forget"))
    Path("b", ".lock").touch()
    assert run(*words, "b").status == 2
    assert sorted(os.listdir("b")) == FILES and tensors("b") == tensors("a")


def test_killed_while_it_replaces_a_finished_run_it_goes_on(
    run: Run, stopped: Callable[..., None]
) -> None:
    words = (*SHRINK, "--keep", "60", "--out")
    other = ("--seed", "1")
    assert run(*words, "a", *other).status == 0
    assert run(*words, "s").status == 0
    before = tensors("s")
    for _ in range(2):  # of a run that went on, too
        stopped("trellis.skeleton.shrink.run.losses", *words, "s", *other, "--overwrite")
        assert list(Path("s").glob(".*.safetensors")) and tensors("s") == before
    refused = run(*words, "s", *other)
    assert refused.status == 2 and "'s' holds a finished run" in refused.err
    again = run(*words, "s", *other, "--overwrite")
    assert again.status == 0, again.err
    assert "continued a run that was stopped" in again.out
    assert sorted(os.listdir("s")) == FILES and tensors("s") == tensors("a")
    stopped("trellis.skeleton.shrink.run.losses", *words, "s", "--overwrite")
    anew = run(*words, "s", *other, "--overwrite")  # what is under way is another's
    assert anew.status == 0 and "continued a run" not in anew.out
    assert sorted(os.listdir("s")) == FILES and tensors("s") == tensors("a")


def test_no_old_model_stays_beside_a_new_dense_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*SHRINK, "--keep", "60", "--out", "s")
    assert run(*words).status == 0
    before, save = tensors("s"), Recognizer.save

    for failing, is_left in (("dense", True), ("model", False)):

        def full(model: Recognizer, folder: Path, *, failing: str = failing, **rest: Any) -> None:
            if Path(folder).name == failing:
                raise TrellisError("No space left on device")
            save(model, folder, **rest)

        with monkeypatch.context() as patch:
            patch.setattr(Recognizer, "save", full)
            ran = run(*words, "--seed", "1", "--overwrite")
        assert ran.status == 2 and "No space left" in ran.err
        assert is_saved("s/model") == is_left and (tensors("s") == before) == is_left
    assert run(*words, "--seed", "1").status == 0
    assert Recognizer.load("s/model").history[-1]["seed"] == 1
    assert sorted(os.listdir("s")) == FILES


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("--seed", "1"), "seed was 0 and is 1"),
        (("--length", "0.2"), "length was 0.1 and is 0.2"),
        (("--keep", "61"), "keep was 60 and is 61"),
        (("--heads", "2"), "architecture.heads was 3 and is 2"),
        (("--no-mirror",), "course.mirror was True and is False"),
    ],
)
def test_other_settings_are_named_and_begin_anew_if_told(
    run: Run, stopped: Callable[..., None], changed: tuple[str, ...], said: str
) -> None:
    words = (*SHRINK, "--keep", "60", "--out")
    stopped("trellis.skeleton.shrink.run.losses", *words, "s")
    refused = run(*words, "s", *changed)
    assert refused.status == 2
    assert "'s' holds a run that was begun with other settings: " in refused.err
    assert said in refused.err and "--overwrite to start again" in refused.err
    assert run(*words, "s", *changed, "--overwrite").status == 0
    assert run(*words, "t", *changed).status == 0
    assert sorted(os.listdir("s")) == FILES and tensors("s") == tensors("t")


def test_what_was_asked_is_told_before_a_search(run: Run, stopped: Callable[..., None]) -> None:
    """The first phases of a search are none of the other's: only its last would find out."""
    keep, search = ("--keep", "60"), ("--at-least", "0.5")
    for asked, then, said in (
        (keep, search, "keep was 60 and is None; at_least was None and is 0.5."),
        (search, keep, "keep was None and is 60; at_least was 0.5 and is None."),
        (search, ("--at-least", "0.6"), "at_least was 0.5 and is 0.6."),
        (("--sparsity", "0.9"), keep, "sparsity was 0.9 and is None; keep was None and is 60."),
    ):
        at = "stages.Maker._pruned" if asked == search else "run.losses"
        stopped(f"trellis.skeleton.shrink.{at}", *SHRINK, *asked, "--out", "s")
        before = sorted(os.listdir("s"))
        refused = run(*SHRINK, *then, "--out", "s")
        assert refused.status == 2
        assert f"'s' holds a run that was begun with other settings: {said}" in refused.err
        assert sorted(os.listdir("s")) == before  # no phase has run
        assert run(*SHRINK, *then, "--out", "s", "--overwrite").status == 0
        assert not list(Path("s").glob(".*"))
        shutil.rmtree("s")


def test_nothing_is_written_among_recordings(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for action in ("up", "down"):
        (tmp_path / "mine" / action).mkdir(parents=True)
        for take in range(4):
            rows = np.random.default_rng(take).normal(size=(5, 9))
            np.savetxt(tmp_path / "mine" / action / f"{take}.csv", rows, delimiter=",")
    words = ("--heads", "2", "--filters", "4", "--out")
    for out in ("mine", "mine/small", "mine/up/../small"):
        for command in (
            ("shrink", "--data", "csv:mine", "--keep", "40", "--course", "quick"),
            ("train", "csv:mine", "--epochs", "1"),
        ):
            refused = run(*command, *words, out)
            assert refused.status == 2
            assert f"--out {out!r} lies in the recordings of 'csv:mine'" in refused.err
    monkeypatch.setenv("HOME", str(tmp_path))
    refused = run("shrink", "--data", "csv:~/mine", "--keep", "40", *words, "mine/small")
    assert refused.status == 2
    assert "--out 'mine/small' lies in the recordings of 'csv:~/mine'" in refused.err
    assert len(load_dataset("csv:mine").sequences) == 8
    ran = run("train", "csv:mine", "--epochs", "1", *words, "minor")
    assert ran.status == 0, ran.err


def test_a_place_that_is_taken_is_said_at_once(run: Run, tmp_path: Path) -> None:
    assert run("train", SOURCE, *SMALL, "--epochs", "1", "--out", "m").status == 0
    refused = run(*SHRINK, "--keep", "60", "--out", "m")
    assert refused.status == 2 and "'m' holds a model; name another folder" in refused.err
    (tmp_path / "s").mkdir()
    (tmp_path / "s/model").write_text("a file")
    for out, said in (("s", "'s/model': it is a file"), ("arms.npz/s", "'arms.npz' is a file")):
        refused = run(*SHRINK, "--keep", "60", "--out", out)
        assert refused.status == 2 and said in refused.err
    assert os.listdir("s") == ["model"]


@pytest.mark.parametrize("part", ["model", "dense"])
def test_a_part_that_is_read_only_is_said_at_once(
    run: Run, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    Path("s", part).mkdir(parents=True)
    access = os.access
    # Who may do all, as many a container's user, may write to any folder that is no other disk's.
    monkeypatch.setattr(os, "access", lambda p, mode: Path(p).name != part and access(p, mode))
    refused = run(*SHRINK, "--keep", "60", "--out", "s")
    assert refused.status == 2 and refused.err.count("\n") == 1
    assert f"'s/{part}' is read-only" in refused.err
    assert os.listdir("s") == [part]


def test_what_cannot_be_cleaned_up_does_not_hide_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that can no longer be written to."""

    def fixed(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with (
        pytest.raises(TrellisError, match=r"cannot write .*a\.txt': No space left"),
        replacing(tmp_path / "a.txt"),
    ):
        monkeypatch.setattr(Path, "unlink", fixed)
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("seed", [-1, 2**63, 10**30])
def test_a_seed_that_is_none_is_refused(run: Run, seed: int) -> None:
    for words in (
        (*SHRINK, "--at-least", "0.5"),
        (*SHRINK, "--keep", "60"),
        ("train", SOURCE, *SMALL, "--epochs", "1"),
    ):
        refused = run(*words, "--seed", str(seed), "--out", "s")
        assert refused.status == 2
        assert f"--seed {seed}: expected a whole number from 0" in refused.err
    assert not Path("s").exists()


def test_too_few_connections_are_told_with_how_many_would_do(run: Run) -> None:
    refused = run(*SHRINK, "--sparsity", "0.997", "--out", "s")
    total = json.loads(run(*SHRINK, "--keep", "60", "--out", "t", "--json").out)["total"]
    assert refused.status == 2 and f"of {total:,} connections may not be enough" in refused.err
    least = float(refused.err.split("a sparsity of ")[1].split()[0])
    assert run(*SHRINK, "--sparsity", str(least), "--out", "s").status == 0


def test_nine_of_ten_hold_nine_tenths(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in range(1, 60):
        for right in range(count + 1):
            said = torch.zeros(2, count, dtype=torch.long)
            said[:, right:] = 1
            monkeypatch.setattr(running, "predictions", lambda *_, said=said: said)
            zeros = torch.zeros(count, dtype=torch.long)
            assert running._shares_right(lambda w, x: x, {}, zeros, zeros) == [right / count] * 2


def test_what_is_left_out_is_told_afterwards(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for take in range(12):
        rows = np.random.default_rng(take).normal(size=(5, 9))
        for action in ("up", "down"):
            (tmp_path / "mine" / action).mkdir(exist_ok=True)
            np.savetxt(tmp_path / "mine" / action / f"{take}.csv", rows, delimiter=",")
    (tmp_path / "mine/up/3.csv").write_text("1,2,nan,4,5,6,7,8,9\n")
    words = ("shrink", "--data", "csv:mine", "--keep", "40", "--course", "quick", "--length", "0.1")
    ran = run(*words, "--heads", "2", "--filters", "4", "--skip-bad", "--out", "s", "--json")
    assert ran.status == 0, ran.err
    assert ran.json["left_out"] == 1
    assert "--skip-bad" in Path("s/report.html").read_text()
    refused = run(*words, "--channels", "bones", "--skip-bad", "--out", "t")
    assert refused.status == 2 and "nothing says how the joints of 'csv:mine' hang" in refused.err
