"""The folders that ``trellis train``, ``tune`` and ``prune`` write to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import trellis
from tests.cli.arms import SMALL, trained  # noqa: F401  (a fixture)
from tests.cli.conftest import Run
from trellis.cli.train import held_folder
from trellis.errors import TrellisError

HOLD = """
import sys
from pathlib import Path
from trellis.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
COMMANDS = {
    "train": ("train", "npz:arms.npz", *SMALL, "--epochs", "2"),
    "tune": ("tune", "arms", "--data", "npz:arms.npz", "--epochs", "2"),
    "prune": ("prune", "arms", "--sparsity", "0.5"),
}


@pytest.fixture(autouse=True)
def _here(trained: Path, tmp_path: Path) -> None:  # noqa: F811
    for name in ("arms", "arms.npz"):
        (tmp_path / name).symlink_to(trained / name)


@contextmanager
def another_process_in(folder: Path) -> Iterator[int]:
    folder.mkdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(Path(trellis.__file__).parents[1])},
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        yield holder.pid
        holder.kill()


def test_one_process_a_folder(
    run: Run, fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with another_process_in(tmp_path / "m") as pid:
        for words in COMMANDS.values():
            assert f"'m' is in use by another process ({pid})" in fails(*words, "--out", "m")
        # It is told at once, and again before anything is written: the other may come meanwhile.
        for name in ("prune", "train"):  # the module of train holds tune, too
            monkeypatch.setattr(f"trellis.cli.{name}.check_folder", lambda *_, **__: None)
        for words in COMMANDS.values():
            assert f"'m' is in use by another process ({pid})" in fails(*words, "--out", "m")
        assert [path.name for path in (tmp_path / "m").iterdir()] == [".lock"]
    for words in COMMANDS.values():  # a lock dies with its holder
        assert run(*words, "--out", "m", "--overwrite").status == 0
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["model.json", "model.safetensors"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_that_was_finished_meanwhile_is_not_overwritten(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    module = "prune" if command == "prune" else "train"
    monkeypatch.setattr(f"trellis.cli.{module}.check_folder", lambda *_, **__: None)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.json").write_text("somebody's")
    assert "'m' holds a finished model" in fails(*COMMANDS[command], "--out", "m")
    assert (tmp_path / "m" / "model.json").read_text() == "somebody's"


@pytest.mark.parametrize(
    "words",
    [
        "train npz:gone.npz",
        "train npz:arms.npz --heads 0",
        "train npz:arms.npz --chunks 0",
        "train npz:arms.npz --fold 9",
        "tune arms --data npz:gone.npz",
        "tune arms --data npz:arms.npz --fold 9",
        "prune arms --sparsity 2",
    ],
)
def test_what_fails_leaves_no_folder(fails: Callable[..., str], tmp_path: Path, words: str) -> None:
    fails(*words.split(), "--out", "m")
    assert not (tmp_path / "m").exists()


def test_a_folder_made_in_vain_is_removed_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for name, left in (("new", False), ("old", True)):
        with pytest.raises(TrellisError), held_folder(tmp_path / name, overwrite=False):
            assert (tmp_path / name).is_dir()
            raise TrellisError("no test recordings")
        assert (tmp_path / name).exists() == left
    with pytest.raises(KeyboardInterrupt), held_folder(tmp_path / "begun", overwrite=False):
        (tmp_path / "begun" / ".checkpoint.safetensors").touch()
        raise KeyboardInterrupt
    assert [path.name for path in (tmp_path / "begun").iterdir()] == [".checkpoint.safetensors"]


def test_what_a_kill_left_half_written_is_cleared_away(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for name in ("model.json", "model.safetensors", ".checkpoint.safetensors"):
        (tmp_path / "m" / f".{name}.0badcafe").write_bytes(b"half")
    assert run(*COMMANDS["train"], "--out", "m").status == 0
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["model.json", "model.safetensors"]


def test_one_epoch_is_not_several(run: Run) -> None:
    assert ", 1 epoch, fp32" in run(*COMMANDS["train"][:-1], "1", "--out", "one").out
    assert ", 2 epochs, fp32" in run(*COMMANDS["train"], "--out", "two").out


def test_a_training_that_was_killed_at_its_very_end_is_in_nobodys_way(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("trellis.training.remove_checkpoint", killed)
        assert run(*COMMANDS["train"], "--out", "m").status == 130
    files = {path.name for path in (tmp_path / "m").iterdir()}
    assert files == {"model.json", "model.safetensors", ".checkpoint.safetensors"}
    ran = run(*COMMANDS["train"], "--seed", "4", "--out", "m", "--overwrite")
    assert ran.status == 0, ran.err
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["model.json", "model.safetensors"]


@pytest.mark.parametrize("command", ["train", "tune"])
def test_killed_when_its_model_is_written_it_is_finished_by_the_same_command(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("trellis.training.remove_checkpoint", killed)
        assert run(*COMMANDS[command], "--out", "m").status == 130
    model = tmp_path / "m" / "model.safetensors"
    before = model.read_bytes()
    model.rename(tmp_path / "m" / ".model.safetensors.0badcafe")  # or between its two renames
    (tmp_path / "m" / ".lock").touch()
    refused = run(*COMMANDS["prune"], "--out", "m")  # it is not its own to finish
    assert refused.status == 2 and "holds a finished model" in refused.err
    ran = run(*COMMANDS[command], "--out", "m")
    assert ran.status == 0 and "wrote m" in ran.out, ran.err
    assert model.read_bytes() == before
    (tmp_path / "m" / ".lock").touch()
    assert run(*COMMANDS[command], "--out", "m").status == 2
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["model.json", "model.safetensors"]
