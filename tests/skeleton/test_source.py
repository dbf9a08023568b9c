"""Words that name a source."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.skeleton.folders import FPHA_LIST, fpha_folder
from trellis.errors import TrellisError
from trellis.skeleton import load
from trellis.skeleton.data.readers import reading
from trellis.skeleton.data.source import FORMATS


@pytest.mark.parametrize(
    "source", ["", "fpha", "recordings", "/data/FPHA", "video:x", "FPHA:x", "hands45:x", ":x"]
)
def test_words_that_name_none_are_told_what_does(source: str) -> None:
    with pytest.raises(TrellisError) as told:
        load(source)
    assert repr(source) in str(told.value)
    assert all(f"{kind}:PATH" in str(told.value) for kind in FORMATS)
    assert "hands45" in str(told.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_no_path(kind: str) -> None:
    with pytest.raises(TrellisError, match=f"write {kind}:PATH"):
        load(f"{kind}:")


@pytest.mark.parametrize("kind", FORMATS)
def test_protocols_by_name(tmp_path: Path, kind: str) -> None:
    with pytest.raises(TrellisError, match=r"protocol='3:1' is unknown to") as told:
        load(f"{kind}:{tmp_path}", protocol="3:1")
    assert all(repr(name) in str(told.value) for name in FORMATS[kind].protocols)


def test_the_built_in_set_has_one_split() -> None:
    with pytest.raises(TrellisError, match="hands45 has one split"):
        load("hands45", protocol="subjects")


def test_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fpha_folder(tmp_path / "data")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(load("fpha:~/data")) == len(FPHA_LIST)


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

    monkeypatch.setattr(reading, "Console", console)
    load(f"fpha:{tmp_path}", progress=progress)
    assert ("Reading recordings" in screen.getvalue()) == (terminal and progress)
