"""``trellis demo``, with so little training that its accuracies say nothing."""

from __future__ import annotations

import pytest
import torch

from tests.cli.conftest import Run
from trellis.cli import demo
from trellis.cli.demo.gestures import CLASSES, gestures


def test_the_table_compares_and_the_worst_is_audited(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "DENSE_STEPS", 20)
    monkeypatch.setattr(demo, "TUNING_STEPS", 2)
    ran = run("demo")
    assert ran.status == 0, ran.err
    assert "Synthetic data" in ran.out
    rows = [line for line in ran.out.splitlines() if " of 16 " in line and " % " in line]
    assert len(rows) == len(demo.SPARSITIES) * len(demo.CONTENDERS)
    for row in rows:
        consistent = "consistent" in row or "viterbi" in row
        assert ("100.0 %" in row and "16 of 16" in row) or not consistent
    assert "The most dead weight:" in ran.out and "trellis prune" in ran.out


def test_gestures_are_the_same_for_a_seed_and_differ_by_class() -> None:
    x, y = gestures(20, seed=1)
    assert torch.equal(x, gestures(20, seed=1)[0])
    assert not torch.equal(x, gestures(20, seed=2)[0])
    means = torch.stack([x[y == label].mean(0).flatten() for label in range(CLASSES)])
    apart = torch.cdist(means, means) + 1e9 * torch.eye(CLASSES)
    assert float(apart.min()) > 1.0
