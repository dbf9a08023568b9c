"""Recipes, rates and batches."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.reference import next_rate, rounded
from trellis.errors import TrellisError
from trellis.training import RECIPES, Recipe, recipe_named
from trellis.training.batches import batch_count, batch_indices
from trellis.training.trainer import SpeedRule, cosine


def test_the_two_recipes_are_what_they_say() -> None:
    paper, default = RECIPES["paper"], RECIPES["default"]
    assert (paper.epochs, paper.batch, paper.schedule, paper.momentum) == (2700, None, "speed", 0.9)
    assert (paper.decay, paper.smoothing, paper.noise) == (0, 0, 0)
    assert (paper.rate, paper.first_weights, paper.origin) == (1e-2, "fan-in", "frame")
    assert not {"first_weights", "origin"} & default.to_dict().keys()  # files stay as they were
    assert default.schedule == "cosine" and min(default.decay, default.smoothing, default.noise) > 0
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        assert Recipe(**json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs=0 is not a whole number"),
        ({"epochs": 2.5}, "epochs=2.5"),
        ({"epochs": True}, "epochs=True"),
        ({"tune_epochs": -1}, "tune_epochs=-1"),
        ({"batch": 0}, "batch=0"),
        ({"rate": 0.0}, "expected a finite number above 0, got rate=0.0"),
        ({"rate": math.nan}, "rate=nan"),
        ({"tune_rate": -1.0}, "tune_rate=-1.0"),
        ({"decay": -0.1}, "expected a finite number from 0 up, got decay=-0.1"),
        ({"noise": math.inf}, "noise=inf"),
        ({"smoothing": 1.0}, "expected smoothing below 1, got smoothing=1.0"),
        ({"tune_smoothing": 1.0}, "expected tune_smoothing below 1, got tune_smoothing=1.0"),
        ({"tune_smoothing": -0.1}, "expected a finite number from 0 up, got tune_smoothing=-0.1"),
        (
            {"tune_smoothing": "none"},
            "expected a finite number from 0 up, got tune_smoothing='none'",
        ),
        ({"smoothing": None}, "expected a finite number from 0 up, got smoothing=None"),
        ({"rate": True}, "expected a finite number above 0, got rate=True"),
        ({"momentum": 1.5}, "expected momentum below 1, got momentum=1.5"),
        ({"schedule": "step"}, "unknown schedule 'step'; known: speed, cosine"),
        ({"first_weights": "he"}, "unknown first_weights='he'; known: usual, fan-in"),
        ({"origin": None}, "unknown origin=None; known: recording, frame"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TrellisError, match=message.replace(".", r"\.")):
        recipe_named("default", **changes)


def test_unknown_recipe() -> None:
    with pytest.raises(TrellisError, match="unknown recipe 'fast'; known: paper, default"):
        recipe_named("fast")


@given(
    st.lists(st.lists(st.floats(0, 10, width=32), min_size=2, max_size=2), min_size=1, max_size=60)
)
def test_the_speed_rule_is_its_scalar_statement(steps: list[list[float]]) -> None:
    """Two networks side by side, each with a rate by its own losses."""
    first = 0.5
    rates = torch.full((2,), first)
    rule = SpeedRule(rates, first)
    expected = [rounded(first)] * 2
    for count, losses in enumerate(steps, 1):
        rule.step(torch.tensor(losses))
        for i in range(2):
            seen = [rounded(row[i]) for row in steps[:count]]
            expected[i] = next_rate(expected[i], seen, first)
        assert rates.tolist() == pytest.approx(expected, rel=1e-5)


def test_the_speed_rule_stays_within_its_bounds() -> None:
    slow, fast = torch.tensor([1.0]), torch.tensor([1.0])
    down, up = SpeedRule(slow, 1.0), SpeedRule(fast, 1.0)
    for step in range(1, 2000):
        down.step(torch.tensor([float(step) ** 3]))  # faster and faster
        up.step(torch.tensor([1.0]))  # not at all
    assert slow.item() == pytest.approx(0.01) and fast.item() == pytest.approx(10.0)


def test_the_cosine_falls_from_the_first_rate_to_nothing() -> None:
    rates = [cosine(0.3, step, 100) for step in range(101)]
    assert rates[0] == 0.3 and rates[50] == pytest.approx(0.15) and rates[100] == 0.0
    assert rates == sorted(rates, reverse=True)


@given(st.integers(1, 200), st.integers(1, 60), st.integers(0, 5))
def test_batches_are_equal_and_disjoint(recordings: int, most: int, epoch: int) -> None:
    batches = batch_indices(recordings, most, epoch)
    count = batch_count(recordings, most)
    assert len(batches) == count
    assert {len(batch) for batch in batches} == {recordings // count}
    seen = torch.cat(batches).tolist()
    assert len(set(seen)) == len(seen) and recordings - len(seen) < count
    again = batch_indices(recordings, most, epoch)
    assert all(torch.equal(a, b) for a, b in zip(batches, again, strict=True))


def test_what_does_not_divide_is_seen_in_another_epoch() -> None:
    seen: set[int] = set()
    for epoch in range(30):
        seen |= set(torch.cat(batch_indices(11, 5, epoch)).tolist())
    assert seen == set(range(11))
