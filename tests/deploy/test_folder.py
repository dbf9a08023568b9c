"""A folder to export to: made as a whole, or nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from trellis.deploy.prepare import made
from trellis.errors import TrellisError


def test_what_fails_within_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), made(tmp_path / "a" / "b" / "c", "C") as folder:
        assert folder.is_dir()
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_made_halfway_leaves_nothing(tmp_path: Path) -> None:
    """No file system takes a name of 300 letters; it is met below two folders that are new."""
    place = tmp_path / "a" / "b" / ("x" * 300)
    with pytest.raises(TrellisError, match="cannot make the folder"), made(place, "C"):
        raise AssertionError("it cannot be there")
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(TrellisError), made(tmp_path / "a" / "b" / ("x" * 300), "C"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    with pytest.raises(KeyError), made(tmp_path / "a" / "b" / "c", "C") as folder:
        (folder.parent / "mine").write_text("")  # somebody put something there
        raise KeyError
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["mine"]
