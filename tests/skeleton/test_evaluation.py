"""Accuracies and confusions, worked out by hand and by counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.skeleton import Confusion, Evaluation

NAMES = ("a", "b", "c", "d")


def test_by_hand() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 2])
    said = np.array([0, 0, 1, 1, 1, 2, 0])
    found = Evaluation.of(labels, said, NAMES)
    assert found.recordings == 7
    assert found.top1 == pytest.approx(3 / 7)
    assert found.mean_class == pytest.approx((2 / 4 + 1 / 2 + 0) / 3)  # d has no recordings
    assert [found.accuracy(i) for i in range(4)] == [0.5, 0.5, 0.0, None]
    assert found.confusions() == [
        Confusion("a", "b", 2, 4),
        Confusion("c", "a", 1, 1),
        Confusion("b", "c", 1, 2),
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_counting(pairs: list[tuple[int, int]]) -> None:
    labels, said = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    found = Evaluation.of(labels, said, NAMES)
    assert found.top1 == pytest.approx(float((labels == said).mean()))
    assert sum(one.count for one in found.confusions()) == int((labels != said).sum())
    shares = [float((said[labels == i] == i).mean()) for i in set(labels.tolist())]
    assert found.mean_class == pytest.approx(sum(shares) / len(shares))
    counts = [one.count for one in found.confusions()]
    assert counts == sorted(counts, reverse=True)
    whole = found.to_dict()
    assert [row["recordings"] for row in whole["classes"]] == found.counts.tolist()
