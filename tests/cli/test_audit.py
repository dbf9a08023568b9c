"""``trellis audit``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

import trellis
from tests.cli.conftest import Run
from tests.cli.models import half_dead, mlp

DEAD = "tests.cli.models:half_dead"
MLP = "tests.cli.models:mlp"


def test_the_table_says_what_the_audit_says(run: Run) -> None:
    ran = run("audit", DEAD, "--input", "1x2")
    assert ran.status == 0
    expected = str(trellis.audit(half_dead(), torch.zeros(1, 2)))
    table, words = expected.split("\n\n")
    assert ran.out.endswith(words + "\n")
    shown = [line.split() for line in ran.out.splitlines()]
    assert all(line.split() in shown for line in table.splitlines() if not line.startswith("-"))


def test_the_json_is_the_audit_and_nothing_else_is_printed(run: Run) -> None:
    ran = run("audit", DEAD, "--input", "1x2", "--json")
    about = {
        "target": DEAD, "weights": None, "masks": None, "fail_under": None, "passed": True
    }  # fmt: skip
    assert ran.json == about | trellis.audit(half_dead(), torch.zeros(1, 2)).to_dict()
    assert set(ran.json["layers"][0]) == {
        "name", "shape", "total", "kept", "accessible", "coaccessible", "live", "dead"
    }  # fmt: skip


def test_what_a_model_prints_is_not_on_stdout(run: Run) -> None:
    ran = run("audit", "tests.cli.models:talkative", "--input", "1x16", "--json")
    assert ran.json["passed"] is True
    assert "a model that talks" in ran.err


def test_fail_under(run: Run) -> None:
    """3 of 5 kept connections are live."""
    statuses = [
        run("audit", DEAD, "--input", "1x2", "--fail-under", limit).status
        for limit in ("0", "0.6", "0.61", "1.0")
    ]
    assert statuses == [0, 0, 1, 1]
    ran = run("audit", DEAD, "--input", "1x2", "--fail-under", "1.0", "--json")
    assert (ran.json["passed"], ran.json["fail_under"]) == (False, 1.0)
    assert "3 of 5 kept connections are live (0.6), below --fail-under 1.0" in ran.err


def test_fail_under_is_a_fraction(fails: Callable[..., str]) -> None:
    for limit in ("100", "-1", "nan"):
        assert "expected a fraction from 0 to 1" in fails(
            "audit", DEAD, "--input", "1x2", f"--fail-under={limit}"
        )


def test_masks_are_applied_before_the_audit(run: Run, tmp_path: Path) -> None:
    model = mlp()
    masks = trellis.prune(model, torch.zeros(1, 16), sparsity=0.9)
    masks.save(tmp_path / "masks.safetensors")
    ran = run("audit", MLP, "--input", "1x16", "--masks", "masks.safetensors", "--json")
    assert ran.json["kept"] == ran.json["live"] == masks.kept
    assert ran.json["masks"] == "masks.safetensors"


def test_masks_of_another_model(fails: Callable[..., str], tmp_path: Path) -> None:
    trellis.Masks({"0.weight": torch.ones(3, 3, dtype=torch.bool)}).save(tmp_path / "m")
    assert "made for another model" in fails("audit", MLP, "--input", "1x16", "--masks", "m")


def test_weights_are_loaded_before_the_audit(run: Run, tmp_path: Path) -> None:
    state = mlp().state_dict()
    state["2.weight"][:, 8:] = 0
    safetensors.torch.save_file(state, tmp_path / "w.safetensors")
    ran = run("audit", MLP, "--input", "1x16", "--weights", "w.safetensors", "--json")
    assert (ran.json["kept"], ran.json["live"]) == (16 * 32 + 8 * 4, 16 * 8 + 8 * 4)


def test_no_digit_is_cut_in_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names fold instead. Every number of the table is on its layer's first line."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    ran = run("audit", "tests.cli.models:LongNames", "--input", "1x300")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
    assert "\x1b" in ran.out and "…" not in plain and "..." not in plain
    (row,) = [line.split() for line in plain.splitlines() if "300x300" in line]
    assert row[1:] == ["300x300", *["90,000"] * 5, "0"]
