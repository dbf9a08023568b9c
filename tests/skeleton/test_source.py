"""Sources by name, and the registry of readers."""

from __future__ import annotations

import io
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.skeleton.folders import FPHA_LIST, fpha_folder
from trellis import plugins
from trellis.errors import TrellisError
from trellis.skeleton import (
    Entry,
    Layout,
    Reading,
    Skeletons,
    load_dataset,
    register_reader,
)
from trellis.skeleton.data.readers import reader
from trellis.skeleton.data.readers.reader import READERS

# As it is before tests and examples add theirs.
BUILT_IN = {name: found for name in READERS.names() if (found := READERS.get(name))}
PATHS = [name for name, reader in BUILT_IN.items() if reader.takes_path]
ARM = Layout("arm", ("shoulder", "hand"), parents=(-1, 0))


@pytest.mark.parametrize(
    "source", ["", "fpha", "recordings", "/data/FPHA", "video:x", "FPHA:x", "hands45:x", ":x"]
)
def test_words_that_name_none_are_told_what_does(source: str) -> None:
    with pytest.raises(TrellisError) as told:
        load_dataset(source)
    assert repr(source) in str(told.value)
    assert all(f"{kind}:PATH" in str(told.value) for kind in PATHS)
    assert "hands45" in str(told.value)


@pytest.mark.parametrize("kind", PATHS)
def test_no_path(kind: str) -> None:
    with pytest.raises(TrellisError, match=f"write {kind}:PATH"):
        load_dataset(f"{kind}:")


@pytest.mark.parametrize("kind", PATHS)
def test_protocols_by_name(tmp_path: Path, kind: str) -> None:
    with pytest.raises(TrellisError, match=f"unknown protocol='3:1' for {kind}") as told:
        load_dataset(f"{kind}:{tmp_path}", protocol="3:1")
    assert all(repr(name) in str(told.value) for name in BUILT_IN[kind].protocols)


def test_the_built_in_set_has_one_split() -> None:
    with pytest.raises(TrellisError, match="unknown protocol='subjects' for hands45"):
        load_dataset("hands45", protocol="subjects")


def test_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fpha_folder(tmp_path / "data")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(load_dataset("fpha:~/data")) == len(FPHA_LIST)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("progress", [True, False])
def test_a_bar_where_it_was_asked_for_and_somebody_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, progress: bool
) -> None:
    fpha_folder(tmp_path)
    screen = io.StringIO()

    def console(*, stderr: bool) -> Console:
        assert stderr
        return Console(file=screen, force_terminal=terminal)

    monkeypatch.setattr(reader, "Console", console)
    load_dataset(f"fpha:{tmp_path}", progress=progress)
    assert ("Reading recordings" in screen.getvalue()) == (terminal and progress)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after the test what it registers."""
    monkeypatch.setattr(READERS, "entries", dict(BUILT_IN))
    monkeypatch.setattr(READERS, "_homes", {name: READERS._homes[name] for name in BUILT_IN})


def arms(path: Path, protocol: str, reading: Reading) -> Skeletons:
    entries = [Entry(f"take {number}", path, number % 2) for number in range(8)]

    def frames(entry: Entry) -> np.typing.NDArray[np.float32]:
        if entry.name == "take 7":
            raise TrellisError("take 7 is broken")
        return np.zeros((5, 2, 3), np.float32)

    return reading.result(reading.frames(entries, frames), ["wave", "point"], ARM)


def test_a_reader_of_ones_own(readers: None, tmp_path: Path) -> None:
    assert register_reader("arms")(arms) is arms
    with pytest.raises(TrellisError, match="take 7 is broken"):
        load_dataset(f"arms:{tmp_path}")
    data = load_dataset(f"arms:{tmp_path}", skip_bad=True)
    assert (len(data), data.source) == (7, f"arms:{tmp_path}")
    assert [item.why for item in data.left_out] == ["take 7 is broken"]
    with pytest.raises(TrellisError, match=r"unknown source 'legs:x'; known: arms:PATH, csv:PATH"):
        load_dataset("legs:x")


def test_names_of_readers(readers: None) -> None:
    for name in ("", "Arms", "a:b", "a/b"):
        with pytest.raises(TrellisError, match="invalid reader name"):
            register_reader(name)
    with pytest.raises(TrellisError, match=r"'npz' is already registered by .*npz.read"):
        register_reader("npz")(arms)
    register_reader("arms")(arms)
    register_reader("arms")(arms)  # a notebook's cell that runs again


def test_a_reader_that_returns_something_else(readers: None) -> None:
    wrong: Any = lambda path, protocol, reading: []  # noqa: E731
    register_reader("arms")(wrong)
    with pytest.raises(TrellisError, match=r"'arms' returned list; expected .*Skeletons"):
        load_dataset("arms:x")


def test_a_reader_of_an_installed_package(
    readers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = """
from tests.skeleton.test_source import arms
from trellis.skeleton import register_reader
register_reader("offered-arms")(arms)
"""
    (tmp_path / "offered_arms.py").write_text(package)
    (tmp_path / "offered_broken.py").write_text("import not_there_at_all")
    (tmp_path / "offered_nothing.py").write_text("")
    points = [
        EntryPoint(name, module, READERS.group)
        for name, module in (
            ("offered-arms", "offered_arms"),
            ("broken", "offered_broken"),
            ("nothing", "offered_nothing"),
        )
    ]
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    with pytest.raises(TrellisError, match=r" broken:PATH, .* nothing:PATH, .* offered-arms:PATH"):
        load_dataset("legs:x")  # which imports none of them
    assert len(load_dataset("offered-arms:x", skip_bad=True)) == 7
    with pytest.raises(TrellisError, match=r"'broken' .*not_there_at_all"):
        load_dataset("broken:x")
    with pytest.raises(TrellisError, match=r"'nothing' .*did not register"):
        load_dataset("nothing:x")
