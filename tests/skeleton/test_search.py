"""The smallest network that holds an accuracy, on recordings held out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.skeleton.small import DATA, FOLD, course, made, same
from trellis.errors import TrellisError
from trellis.skeleton.shrink.run import held_out
from trellis.training.search import ladder, smallest


def test_a_search_never_looks_at_test_recordings() -> None:
    outcome = made(at_least=0.5)
    sequences = list(DATA.sequences)
    for i in FOLD.test:
        sequences[i] = np.zeros_like(sequences[i])
    blind = made(at_least=0.5, data=dataclasses.replace(DATA, sequences=tuple(sequences)))
    assert (outcome.curve, outcome.kept, outcome.met) == (blind.curve, blind.kept, blind.met)
    assert same(outcome.small, blind.small)
    assert outcome.met and outcome.kept == min(
        point.kept for point in outcome.curve if point.accuracy >= 0.5
    )


def test_what_cannot_be_held_ends_with_the_best() -> None:
    outcome = made(course(augmentation=None), at_least=1.0)
    if outcome.met:  # so easy on this machine that it can
        return
    best = max(point.accuracy for point in outcome.curve)
    assert outcome.kept in [point.kept for point in outcome.curve if point.accuracy == best]


@given(st.integers(1, 3_000_000), st.integers(1, 200))
def test_a_ladder_goes_from_all_to_the_least(total: int, least: int) -> None:
    total = max(total, least)
    rungs = ladder(total, least)
    assert rungs[0] == total and least <= rungs[-1] < max(2 * least, least + 2)
    assert rungs == sorted(rungs, reverse=True)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 5))
def test_all_at_once_finds_the_smallest_that_holds(accuracies: list[int], wanted: int) -> None:
    rungs = list(range(len(accuracies), 0, -1))
    by_rung = dict(zip(rungs, accuracies, strict=True))
    found, measured = smallest(rungs, lambda some: [by_rung[r] for r in some], wanted, together=99)
    holds = [rung for rung, value in by_rung.items() if value >= wanted]
    assert found == (min(holds) if holds else None) and measured == by_rung


@given(st.integers(1, 40), st.integers(0, 40))
def test_halving_finds_it_too_where_smaller_is_never_better(count: int, holding: int) -> None:
    rungs = list(range(count, 0, -1))
    asked: list[int] = []

    def measure(some: list[int]) -> list[float]:
        asked.extend(some)
        return [1.0 if rung > count - holding else 0.0 for rung in some]

    found, _ = smallest(rungs, measure, 0.5, together=1)
    assert found == (max(count - holding + 1, 1) if holding else None)
    assert len(asked) <= count.bit_length() and len(set(asked)) == len(asked)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 9))
def test_a_quarter_of_each_class_is_held_out(labels: list[int], seed: int) -> None:
    classes = np.array(labels, np.int64)
    chosen = np.arange(len(classes))
    counts = np.bincount(classes)
    if counts.max() < 2:
        with pytest.raises(TrellisError, match="give sparsity or keep instead"):
            held_out(classes, chosen, seed)
        return
    learn, judge = held_out(classes, chosen, seed)
    assert sorted([*learn, *judge]) == chosen.tolist()
    for label in np.unique(classes):
        held = int((classes[judge] == label).sum())
        assert held == (max(counts[label] // 4, 1) if counts[label] > 1 else 0)
