"""Means and deviations, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paper.waves import small, waves
from trellis.paper import plan_of
from trellis.paper.settings import describe
from trellis.paper.tables import Figure, summary


@given(st.lists(st.floats(0, 100), min_size=2, max_size=9))
def test_mean_and_deviation_are_numpys(values: list[float]) -> None:
    figure = Figure.of(values)
    assert figure.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert figure.deviation == pytest.approx(np.std(values, ddof=1), abs=1e-9)


def test_one_seed_has_no_deviation() -> None:
    assert str(Figure.of([2 / 3 * 100])) == "66.67"
    assert Figure.of([5.0]).deviation is None


DATA = describe(waves(folds=3))
ROW = plan_of(small(), DATA).rows[1]


def cells(live: int = 10) -> dict[str, dict[str, Any]]:
    random = np.random.default_rng(0)
    return {
        f"{seed}/{fold}": {
            "row": ROW.key, "seed": seed, "fold": fold, "kept": 40, "live": live,
            "correct": int(random.integers(0, 9)), "test": 9 + fold, "mean_class": random.random(),
            "train_correct": int(random.integers(0, 20)), "train": 27,
        }
        for seed in range(2)
        for fold in range(3)
    }  # fmt: skip


def test_folds_count_by_their_test_recordings() -> None:
    given_cells = cells()
    found = summary(ROW, given_cells, 2, DATA)
    by_seed = [[r for r in given_cells.values() if r["seed"] == seed] for seed in range(2)]
    # For top-1, weighting by test recordings is pooling them.
    pooled = [100 * sum(r["correct"] for r in s) / sum(r["test"] for r in s) for s in by_seed]
    assert found.top1 is not None
    assert found.top1.mean == pytest.approx(np.mean(pooled))
    assert found.top1.deviation == pytest.approx(np.std(pooled, ddof=1))
    classes = [
        100 * np.average([r["mean_class"] for r in s], weights=[r["test"] for r in s])
        for s in by_seed
    ]
    assert found.mean_class is not None
    assert found.mean_class.mean == pytest.approx(np.mean(classes))
    assert str(found.kept) == "40" and str(found.live) == "25.0 ± 0.0"


def test_a_seed_that_lacks_a_fold_does_not_count_yet() -> None:
    given_cells = cells()
    del given_cells["1/2"]
    found = summary(ROW, given_cells, 2, DATA)
    assert (found.networks, found.wanted) == (5, 6)
    assert found.top1 is not None and found.top1.deviation is None
    assert summary(ROW, {}, 2, DATA).top1 is None


def test_disconnected_is_counted() -> None:
    assert summary(ROW, cells(live=0), 2, DATA).severed
    some = cells()
    some["0/0"]["live"] = 0
    found = summary(ROW, some, 2, DATA)
    assert found.disconnected == 1 and not found.severed


def test_almost_all_live_is_not_all() -> None:
    given_cells = cells(live=40)
    given_cells["0/0"] |= {"kept": 40_000, "live": 39_999}
    assert str(summary(ROW, given_cells, 2, DATA).live).startswith("99.9")


def test_a_refused_cell_says_why() -> None:
    given_cells = cells()
    given_cells["0/0"] = {"row": ROW.key, "seed": 0, "fold": 0, "refused": "too few"}
    found = summary(ROW, given_cells, 2, DATA)
    assert found.refused == "too few" and found.networks == 5
