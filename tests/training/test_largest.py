"""The largest of each row, against sorting."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from trellis.skeleton.model.gcn_stacks import _halved, largest, threshold

NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, 2.0, float("inf"), 1e-45]), st.floats(0, 2.0**100, width=32)
)
ROWS = st.lists(st.lists(NUMBERS, min_size=6, max_size=6), min_size=1, max_size=4)


@given(ROWS, st.lists(st.integers(0, 6), min_size=4, max_size=4))
def test_thresholds_are_the_nth_of_a_sort_on_every_device(
    rows: list[list[float]], counts: list[int]
) -> None:
    values, wanted = torch.tensor(rows), torch.tensor(counts[: len(rows)])
    sorted_down = values.sort(1, descending=True).values
    expected = [
        float("inf") if n == 0 else float(row[n - 1])
        for row, n in zip(sorted_down, wanted.tolist(), strict=True)
    ]
    assert threshold(values, wanted).tolist() == expected
    assert _halved(values, wanted).tolist() == expected  # what a GPU does


@given(
    ROWS,
    st.lists(st.integers(0, 6), min_size=4, max_size=4),
    st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=6, max_size=6),
)
def test_masks_are_the_first_of_a_sort_by_value_then_further_then_place(
    rows: list[list[float]], counts: list[int], ties: list[float]
) -> None:
    values, wanted = torch.tensor(rows), torch.tensor(counts[: len(rows)])
    further = torch.tensor(ties).expand_as(values)
    found = largest(wanted, values, further)
    for row, mask, n in zip(values, found, wanted.tolist(), strict=True):
        able = [i for i in range(len(row)) if row[i] > 0]
        order = sorted(able, key=lambda i: (-float(row[i]), -ties[i], i))
        assert mask.nonzero().flatten().tolist() == sorted(order[:n])
