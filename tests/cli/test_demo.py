"""``trellis demo``, on a small network with hardly any training."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from trellis.cli import demo
from trellis.cli.demo import SETTINGS
from trellis.training import recipe_named

from .conftest import Run


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_named("quick", epochs=1, tune_epochs=1, batch=600)
    little = dataclasses.replace(SETTINGS, recipe=recipe, heads=2, filters=4, rates=(90.0, 99.0))
    monkeypatch.setattr(demo, "SETTINGS", little)


def test_says_what_it_did_and_what_to_try(run: Run, tmp_path: Path) -> None:
    ran = run("demo", "--out", str(tmp_path / "runs" / "demo"))
    assert ran.status == 0, ran.err
    for word in ("synthetic", "Standard MP", "TC MP", "viterbi", "top-1", "Try next"):
        assert word in ran.out
    page = tmp_path / "runs" / "demo" / "report.html"
    assert f"wrote {page}" in ran.out and "not there" not in ran.out
    assert "hands45" in page.read_text(encoding="utf-8")


def test_a_stopped_demo_goes_on_and_a_finished_one_starts_again(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    run("demo", "--out", str(folder))
    cells = (folder / "cells.jsonl").read_text().splitlines()
    dense = folder.glob("dense/*").__next__()
    trained = dense.stat().st_mtime_ns

    (folder / "cells.jsonl").write_text("\n".join(cells[:1]) + "\n")
    assert run("demo", "--out", str(folder)).status == 0
    assert dense.stat().st_mtime_ns == trained  # the dense network was kept
    again = (folder / "cells.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["cell"] for line in again) == sorted(
        json.loads(line)["cell"] for line in cells
    )

    (tmp_path / "link").symlink_to(folder)
    assert run("demo", "--out", str(tmp_path / "link")).status == 0
    assert dense.stat().st_mtime_ns != trained
