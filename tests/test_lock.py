"""One process a folder."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from trellis import files as lock
from trellis.errors import TrellisError
from trellis.files import locked


def test_held_once_and_free_afterwards(tmp_path: Path) -> None:
    with locked(tmp_path):
        with (
            pytest.raises(TrellisError, match=rf"in use by another process \({os.getpid()}\)"),
            locked(tmp_path),
        ):
            pass
        assert (tmp_path / ".lock").exists()  # who was refused has removed nothing
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


def test_a_lock_file_that_its_last_holder_removes_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened before the last holder removed it and held after: another would make its own."""
    take = lock._take
    removed: list[int] = []

    def late(file: int) -> None:
        if not removed:
            (tmp_path / ".lock").unlink()
            removed.append(file)
        take(file)

    monkeypatch.setattr(lock, "_take", late)
    with locked(tmp_path):
        assert (tmp_path / ".lock").exists()
        with pytest.raises(TrellisError, match="in use"), locked(tmp_path):
            pass


def test_never_two_at_once(tmp_path: Path) -> None:
    inside, most = 0, 0
    count = threading.Lock()

    def worker() -> None:
        nonlocal inside, most
        for _ in range(300):
            try:
                with locked(tmp_path):
                    with count:
                        inside += 1
                        most = max(most, inside)
                    with count:
                        inside -= 1
            except TrellisError:
                pass

    threads = [threading.Thread(target=worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and os.listdir(tmp_path) == []


def test_a_file_system_without_locks_is_done_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(lock, "_take", refuse)
    with locked(tmp_path):
        pass


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TrellisError, match="cannot write to"), locked(tmp_path / "gone"):
        pass


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "folder" / ".lock").symlink_to(tmp_path / "mine")
    with pytest.raises(TrellisError, match="cannot write"), locked(tmp_path / "folder"):
        pass
    assert (tmp_path / "mine").read_text() == "mine"
