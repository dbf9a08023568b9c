"""Drafts: what a killed process leaves, and what is never replaced by a file."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
import safetensors.torch
import torch
from torch import Tensor

import trellis
from trellis.errors import TrellisError
from trellis.files import check_writable, replacing, write_tensors
from trellis.saving.folder import tidy_folder
from trellis.saving.model import write_weights


@pytest.mark.parametrize("write", [write_tensors, write_weights])
def test_tensors_are_written_into_the_draft_itself(tmp_path: Path, write: object) -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}
    with replacing(tmp_path / "model.safetensors") as [draft]:
        before = draft.stat().st_ino
        write(draft, tensors)  # type: ignore[operator]
        assert draft.stat().st_ino == before, "moved there from a file of another name"
    found = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def gcn(value: float) -> trellis.skeleton.GCN:
    model = trellis.skeleton.GCN(nodes=2, channels=3, classes=2, heads=1, filters=2)
    torch.nn.init.constant_(next(model.parameters()), value)
    return model


def value_in(folder: Path) -> float:
    parameter: Tensor = next(trellis.load(folder).parameters())
    return float(parameter.detach().flatten()[0])


class Moves:
    """Counts the calls that move files, and stops before or after one of them."""

    def __init__(
        self, patch: pytest.MonkeyPatch, at: int, after: bool, stop: Callable[[], NoReturn]
    ) -> None:
        self.count, self.at, self.after, self.stop = 0, at, after, stop
        for name in ("replace", "rename", "link", "unlink"):
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, move: Callable[..., None]) -> Callable[..., None]:
        def moved(*given: Any, **named: Any) -> None:
            self.count += 1
            if self.count == self.at and not self.after:
                self.stop()
            move(*given, **named)
            if self.count == self.at and self.after:
                self.stop()

        return moved


def interrupted() -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize("how", ["kill", "interrupt"])
@pytest.mark.parametrize("after", [False, True])
def test_a_save_that_is_stopped_leaves_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, after: bool
) -> None:
    """At every move of a file, and in a row: the old model or the new one can be loaded."""
    folder, old = tmp_path / "m", 1.0
    trellis.save(gcn(old), folder)
    for at in range(1, 20):
        new = old + 1
        if how == "kill":
            if (child := os.fork()) == 0:
                moves = Moves(monkeypatch, at, after, lambda: os._exit(9))
                trellis.save(gcn(new), folder)
                os._exit(0)
            reached = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        else:
            with monkeypatch.context() as patch:
                moves = Moves(patch, at, after, interrupted)
                with suppress(KeyboardInterrupt):
                    trellis.save(gcn(new), folder)
                reached = moves.count >= at
        found = value_in(folder)
        assert found in (old, new), f"stopped at move {at}"
        if how == "interrupt":
            names = sorted(path.name for path in folder.iterdir())
            assert names == ["model.json", "model.safetensors"]
        old = found
        if not reached:
            break
    assert 1 < at < 19 and found == new  # the last was not stopped
    tidy_folder(folder)
    assert value_in(folder) == new
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]


def written(path: Path, text: str = "new") -> None:
    check_writable(path)
    with replacing(path) as [draft]:
        draft.write_text(text)


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "a.txt", tmp_path / "link"
    link.symlink_to(Path("real", "a.txt"))  # not there yet
    for text in ("first", "second"):
        written(link, text)
        assert link.is_symlink() and target.read_text() == text
    assert os.listdir(target.parent) == ["a.txt"]
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(TrellisError, match="round"):
        written(tmp_path / "round")


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        written(pipe)
        assert os.read(reader, 100) == b"new"
    finally:
        os.close(reader)
    assert pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    null, full = tmp_path / "null", tmp_path / "full"
    try:
        os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.mknod(full, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        null.write_text("")
    except OSError:
        pytest.skip("only root may make devices, and not everywhere")
    (tmp_path / "link").symlink_to("null")
    for name in ("null", "link"):
        written(tmp_path / name)
    with pytest.raises(TrellisError, match=r"full'.*No space left"):
        written(full)
    assert null.is_char_device() and full.is_char_device() and (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["full", "link", "null"]
    with pytest.raises(TrellisError, match="cannot make the folder"):
        trellis.save(gcn(1), null)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("s")
        with pytest.raises(TrellisError, match="'s': it is a socket; name a file"):
            written(Path("s"))


def test_an_output_that_is_an_input_is_refused(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.write_text("mine")
    (tmp_path / "link").symlink_to(one)
    for path in (one, tmp_path / "link", tmp_path / "." / "one"):
        with pytest.raises(TrellisError, match="it is an input, too"):
            check_writable(path, [tmp_path / "other", one])
    check_writable(tmp_path / "other", [one])
