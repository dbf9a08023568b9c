"""The live line."""

from __future__ import annotations

import io
import re
import time

import pytest
import torch
from rich.console import Console

from tests.training.networks import gcn, recordings
from trellis.cli.output import ProgressLog, training_bar
from trellis.training import Training, forward_of, recipe_named, run, stack


def trained(console: Console) -> None:
    model = gcn(0)
    x, y = recordings(20)
    recipe = recipe_named("default", epochs=4)
    training = Training(forward_of(model), stack([model]), x, y, recipe, seeds=[0])
    with training_bar("training", console) as watch:
        run(training, watch=watch)
    assert torch.isfinite(training.loss).all()


def test_a_terminal_sees_epoch_loss_accuracy_and_time_left() -> None:
    shown = io.StringIO()
    trained(Console(file=shown, force_terminal=True, width=120))
    for text in ("training", "4/4", "loss ", "training accuracy ", "0:00:0"):
        assert text in shown.getvalue()


def test_a_log_has_a_line_when_a_phase_starts() -> None:
    shown = io.StringIO()
    trained(Console(file=shown, force_terminal=False))
    assert re.fullmatch(r"training: epoch 1 of 4  loss \d\.\d+  .* %\n", shown.getvalue())


def test_a_log_sees_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trellis.cli.output._LOG_EVERY", 0.0)
    shown = io.StringIO()
    trained(Console(file=shown, force_terminal=False, width=20))
    lines = [line for line in shown.getvalue().splitlines() if "epoch" in line]
    assert len(lines) == 4
    for epoch, line in enumerate(lines, 1):
        found = rf"training: epoch {epoch} of 4  loss \d\.\d+  training accuracy \d+\.\d %"
        assert re.fullmatch(found, line)


def test_a_log_is_not_silent_during_a_long_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trellis.cli.output._LOG_EVERY", 0.05)
    shown = io.StringIO()
    with ProgressLog(Console(file=shown, force_terminal=False)) as log:
        log.tell("pruning", lambda: "1 of 2")
        time.sleep(1.3)
    first, second, *_ = shown.getvalue().splitlines()
    assert first == "pruning: 1 of 2"
    assert re.fullmatch(r"pruning: working for \d+ s", second)
