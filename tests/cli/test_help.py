"""What ``--help`` says of single options."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run
from trellis.cli import COMMANDS


@pytest.fixture
def told(run: Run, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The help of each command on a narrow terminal, its lines joined to one."""
    monkeypatch.setenv("COLUMNS", "80")
    helps = {name: run(*name.split(), "--help").out for name in [*COMMANDS, "data info"]}
    return {
        name: " ".join(" ".join(line.strip("│╭╰─╮╯ ") for line in text.splitlines()).split())
        for name, text in helps.items()
    }


def test_the_fold_of_a_training_is_not_that_of_a_model(told: dict[str, str]) -> None:
    assert (
        "trained on;" not in told["train"] and "lists them). Default: the first." in (told["train"])
    )
    for name in ("tune", "evaluate"):
        assert "Default: the one the model was trained on;" in told[name]
        assert "Default: that of the model's training" in told[name]


def test_defaults_can_be_read(told: dict[str, str]) -> None:
    assert (
        "usage: trellis evaluate [-h] [OPTIONS] FOLDER|hf:OWNER/NAME [RECORDING ...]"
        in told["evaluate"]
    )
    assert "--split test|train|all Part of --data to test on. (default: test)" in (told["evaluate"])
    for text in told.values():
        for empty in ("", "None", "False"):
            assert f"(default: {empty})" not in text
        assert "(default: True)" not in text  # of an option that begins with --no
    for name in ("train", "tune", "reproduce"):
        assert "2700 epochs" in told[name]


def test_every_scope_is_named(told: dict[str, str]) -> None:
    _, _, scope = told["prune"].partition("--scope NAME|FILE.json")
    scope = scope.partition("--surrogate")[0]
    for name in ("global", "layer", "erk", "lamp", "balanced"):
        assert f'"{name}":' in scope
    assert '"balanced": between "global" and "erk" (the default' in scope


def test_what_commands_share_is_worded_once(told: dict[str, str]) -> None:
    for name in ("data info", "train", "tune", "reproduce", "shrink"):
        assert "npz:FILE, csv:FOLDER: your own recordings. hands45: built-in" in told[name]
    for name in ("data info", "train", "tune", "evaluate", "reproduce"):
        assert (
            "Protocol that divides recordings: fpha 1:1 or subjects, shrec17 14 or 28" in told[name]
        )
        assert "Skip and count recordings that cannot be read" in told[name]
