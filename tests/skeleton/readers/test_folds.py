"""Halves that are drawn where nobody gave a split."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.skeleton.data.readers.reader import drawn_halves

Sides = dict[str, bool]  # whether a recording, by its name, is tested on


def sides(names: Sequence[str], labels: Sequence[int] | None = None) -> Sides:
    [fold] = drawn_halves(names, np.zeros(len(names), int) if labels is None else np.array(labels))
    assert sorted([*fold.train, *fold.test]) == list(range(len(names)))
    return {name: i in fold.test for i, name in enumerate(names)}


def drawn(name: str) -> bool:
    """The side that a name draws: what it gets where others are in balance."""
    others = [f"others/{number}.csv" for number in range(8)]
    return sides([*others, name])[name]


def moved(before: Sides, after: Sides) -> list[str]:
    return [name for name, side in before.items() if after[name] != side]


numbered = st.builds("walk/{}{}.csv".format, st.sampled_from(["", "anna "]), st.integers(0, 30))
names = st.lists(st.one_of(numbered, st.text(min_size=1, max_size=3)), unique=True, max_size=20)


@given(names)
def test_each_side_has_a_quarter_at_least_and_one(names: list[str]) -> None:
    tested = sum(sides(names).values())
    if len(names) == 1:
        assert tested == 0
    elif names:
        assert min(tested, len(names) - tested) >= max(1, len(names) // 4)


@given(names.filter(bool), st.data())
def test_one_more_moves_at_most_one_of_its_class_and_none_of_others(
    names: list[str], data: st.DataObject
) -> None:
    labels = data.draw(st.lists(st.integers(0, 1), min_size=len(names), max_size=len(names)))
    before = sides(names[:-1], labels[:-1])
    changed = moved(before, sides(names, labels))
    assert len(changed) <= 1
    assert all(labels[names.index(name)] == labels[-1] for name in changed)


@given(names)
def test_sides_are_those_that_names_draw_where_that_leaves_a_quarter(names: list[str]) -> None:
    alone = {name: drawn(name) for name in names}
    tested = sum(alone.values())
    if min(tested, len(names) - tested) >= max(1, len(names) // 4):
        assert sides(names) == alone


@pytest.mark.parametrize("name", ["walk/{}.csv", "day 1/take {:04d} of anna.csv", "walk {}"])
def test_recordings_with_numbers_are_halved_and_stay(name: str) -> None:
    made = [name.format(number) for number in range(40)]
    for count in range(2, len(made)):
        before = sides(made[:count])
        assert not moved(before, sides(made[: count + 1]))
        assert abs(2 * sum(before.values()) - count) <= 1


def test_the_number_of_a_folder_is_not_that_of_a_recording() -> None:
    pairs = [
        (f"walk {number}/anna.csv", f"walk {number + 1}/anna.csv") for number in range(0, 20, 2)
    ]
    assert any(drawn(one) == drawn(other) for one, other in pairs)


@given(names, st.randoms())
def test_the_order_does_not_matter(names: list[str], random: Random) -> None:
    shuffled = sorted(names)
    random.shuffle(shuffled)
    assert sides(shuffled) == sides(names)


def test_hardly_any_of_a_growing_class_move() -> None:
    """Two hundred names without numbers, added one by one."""
    random = Random(0)
    made = ["walk/" + "".join(random.choices("abcdefgh", k=9)) + ".csv" for _ in range(200)]
    grown = [sides(made[:count]) for count in range(1, len(made) + 1)]
    changes = sum(len(moved(*pair)) for pair in pairwise(grown))
    assert changes <= 10


def test_the_draw_is_the_same_on_every_machine() -> None:
    """These are in the test half for ever: a model's history names the fold and no more."""
    made = [f"wave/{number}.csv" for number in range(12)] + ["anna.csv", "Zo\u00eb.csv"]
    tested = {f"wave/{number}.csv" for number in (0, 3, 4, 6, 8, 11)} | {made[-2], made[-1]}
    assert {name for name, test in sides(made).items() if test} == tested
    assert drawn("Zo\u00eb.csv") == drawn("Zoe\u0308.csv")  # composed, as Macs write it, or not


def test_names_that_are_no_text_have_a_side() -> None:
    assert len(sides(["walk/\udcff.csv", f"walk/{'9' * 5000}.csv", "walk/\u0663.csv"])) == 3
