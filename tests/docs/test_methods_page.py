"""The example method of docs/extending/methods.md, as a module of its own on the command line."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from trellis.cli import main
from trellis.methods import available
from trellis.methods.method import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "extending" / "methods.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHELL = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_is_short() -> None:
    assert len(PYTHON[0].splitlines()) < 30


def test_the_example_runs_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = {n: c for n, c in available().items() if c.__module__.startswith("trellis.")}
    monkeypatch.setattr(METHODS, "entries", ours)  # another test may have run the page
    for name in ("shop", "shop.models", "shop.methods"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "methods.py").write_text(PYTHON[0])
    (tmp_path / "shop" / "models.py").write_text(PYTHON[1].partition("\n\nx = ")[0])
    monkeypatch.chdir(tmp_path)
    prune, help_ = (shlex.split(line)[1:] for line in SHELL[0].splitlines())
    assert main(prune) == 0, capsys.readouterr().err
    assert "64 of 640" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(help_)
    assert "relative: Exponent of the mean." in capsys.readouterr().out
    for name in ("shop", "shop.models", "shop.methods"):
        monkeypatch.delitem(sys.modules, name, raising=False)
