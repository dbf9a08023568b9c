"""The paper's figures obey the arithmetic that tells what they are."""

from __future__ import annotations

import math

import pytest

from trellis.paper.published import DENSE_ACCURACY, PARAMETERS, TABLE1, TABLE2, TABLE3

ACCURACIES = [
    DENSE_ACCURACY,
    *(cell.accuracy for row in TABLE2.values() for cell in row.values() if cell.accuracy),
    *TABLE3.values(),
]


@pytest.mark.parametrize("accuracy", sorted(set(ACCURACIES)))
def test_every_accuracy_is_a_share_of_575_recordings_cut_after_two_places(accuracy: float) -> None:
    shares = {math.floor(10_000 * k / 575) for k in range(576)}
    assert round(100 * accuracy) in shares


def test_kept_counts_are_floors_of_the_rate_within_a_few_tensors() -> None:
    for row in TABLE2.values():
        for rate, cell in row.items():
            exact = PARAMETERS * (1000 - round(10 * rate)) // 1000
            assert 0 <= exact - cell.kept <= 4


def test_methods_of_one_rate_keep_the_same_number_and_tc_keeps_all_live() -> None:
    assert set(TABLE2) == {"mp", "stochastic-mp", "tc", "tc-stochastic"}
    for rate in (50, 75, 90, 95, 99, 99.9):
        assert len({row[rate].kept for row in TABLE2.values()}) == 1
        assert TABLE2["tc"][rate].live == TABLE2["tc-stochastic"][rate].live == 100


def test_the_disconnected_cell_is_the_only_one_without_an_accuracy() -> None:
    missing = [(k, r) for k, row in TABLE2.items() for r, c in row.items() if c.accuracy is None]
    assert missing == [("stochastic-mp", 99.9)]


def test_table_1_has_its_groups() -> None:
    assert [len(group) for group in TABLE1] == [3, 4, 2, 5, 4, 2, 1]
    assert max(known.accuracy for group in TABLE1 for known in group) == DENSE_ACCURACY
