"""``trellis demo``, on a small network with hardly any training."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from pathlib import Path

import pytest

from trellis.cli import demo
from trellis.errors import TrellisError
from trellis.training import recipe_named

from .conftest import Fails, Run

WRITTEN = (
    "paper/report.html",
    "paper/table.txt",
    "shrink-50/report.html",
    "shrink-80/report.html",
    "c/model.c",
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_named("quick", epochs=1, tune_epochs=1, batch=600)
    little = dataclasses.replace(
        demo.SETTINGS, recipe=recipe, heads=2, filters=4, rates=(50.0, 80.0)
    )
    short = dataclasses.replace(
        demo.COURSE.recipe, epochs=1, prune_epochs=1, prune_every=1, tune_epochs=1, batch=600
    )
    monkeypatch.setattr(demo, "SETTINGS", little)
    monkeypatch.setattr(demo, "COURSE", dataclasses.replace(demo.COURSE, recipe=short))
    monkeypatch.setattr(demo, "_TIMED", 3)
    monkeypatch.setattr(demo, "cores", lambda: 1)  # no worker processes: they import torch


def _missing(*_: object) -> None:
    raise TrellisError("no compiler here")


def test_compares_exports_and_says_what_to_try(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "demo"
    ran = run("demo", "--out", out)
    assert ran.status == 0, ran.err
    for name in WRITTEN:
        assert (out / name).stat().st_size > 0, name
    rows = [
        line.split() for line in ran.out.splitlines() if "(paper)  " in line or "(ours)  " in line
    ]
    assert [row[0] for row in rows] == ["dense", "MP", "TC", "shrink", "MP", "TC", "shrink"]
    consistent = [row for row in rows if row[0] in ("TC", "shrink")]
    assert all(row[-3] == "100.0" for row in consistent)  # all that is kept is live
    for word in ("synthetic", "top-1", "bytes of tables", "Try next"):
        assert word in ran.out
    assert "not timed" in ran.out or "microseconds" in ran.out


def test_a_second_call_shows_the_finished_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "toolchain", _missing)
    monkeypatch.setattr("trellis.Runtime", _missing)
    first = run("demo", "--out", "demo")
    assert first.status == 0, first.err
    assert "not timed: no compiler here" in first.out
    assert "not written: no compiler here" in first.out
    models = sorted((tmp_path / "demo").glob("shrink-*/model/model.safetensors"))
    dense = next((tmp_path / "demo" / "paper").glob("dense/*"))
    times = [path.stat().st_mtime_ns for path in (*models, dense)]
    second = run("demo", "--out", "demo")
    assert second.status == 0, second.err
    assert "holds a finished demo" in second.out
    assert [path.stat().st_mtime_ns for path in (*models, dense)] == times
    assert _rows(first.out) == _rows(second.out)


def test_a_stopped_demo_continues(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "toolchain", _missing)
    with monkeypatch.context() as patch:
        patch.setattr(demo, "shrink_in", _killed)
        assert run("demo", "--out", "demo").status == 130
    dense = next((tmp_path / "demo" / "paper").glob("dense/*"))
    trained = dense.stat().st_mtime_ns
    ran = run("demo", "--out", "demo")
    assert ran.status == 0 and "Continuing" in ran.out
    assert dense.stat().st_mtime_ns == trained


def test_other_settings_start_again(tmp_path: Path) -> None:
    out, mark = tmp_path / "demo", tmp_path / "demo" / "demo.json"
    with demo._begun(out, demo.SETTINGS, overwrite=False) as state:
        assert state == ""
    found = json.loads(mark.read_text())
    (out / "paper").mkdir()
    (out / "mine.txt").touch()
    with demo._begun(out, demo.SETTINGS, overwrite=False) as state:
        assert "Continuing" in state and (out / "paper").exists()
    mark.write_text(json.dumps(found | {"versions": {"trellis": "0.0.1"}}))
    with demo._begun(out, demo.SETTINGS, overwrite=False) as state:
        assert "another version" in state and not (out / "paper").exists()
    assert json.loads(mark.read_text()) == found
    assert (out / "mine.txt").exists()


def test_other_files_are_left_alone(fails: Fails, tmp_path: Path) -> None:
    (tmp_path / "mine" / "paper").mkdir(parents=True)
    assert "expected an empty folder" in fails("demo", "--out", "mine")
    (tmp_path / "file").touch()
    assert "it is a file" in fails("demo", "--out", "file")


def test_commands_to_try_name_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`trellis` if the shell finds this one; otherwise its path, from the current folder."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "trellis"):
        (programs / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(programs / "python"))
    monkeypatch.setenv("PATH", os.defpath)
    assert demo.command() == shlex.join([".venv/bin/trellis"])
    monkeypatch.setenv("PATH", str(programs))
    assert demo.command() == "trellis"
    (programs / "trellis").unlink()
    assert demo.command() == f"{programs / 'python'} -m trellis"


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def _rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if "%" in line and "(" in line]
