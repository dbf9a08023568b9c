"""Running commands in this process, in a folder of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trellis.cli import main


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]
Fails = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call ``main`` with the words of a command line, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path) -> Ran:
        try:
            status = main([str(word) for word in words])
        except SystemExit as stop:  # --help and misspelt options end so
            status = int(stop.code or 0)
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return call


@pytest.fixture
def fails(run: Run) -> Fails:
    """The one line that a failing command prints."""

    def call(*words: str | Path) -> str:
        ran = run(*words)
        assert ran.status == 2
        assert ran.out == ""
        assert ran.err.startswith("trellis: error: ") and ran.err.count("\n") == 1
        return ran.err

    return call
