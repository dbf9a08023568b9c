"""Sparsity over steps: pure functions of the step."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis import Schedule
from trellis.errors import TrellisError
from trellis.training.schedule import CURVES, Plan

GRADUAL = [name for name in CURVES if name != "one-shot"]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    begin = draw(st.integers(0, 20))
    return Schedule(
        draw(st.sampled_from(GRADUAL)),
        begin=begin,
        end=begin + draw(st.integers(1, 60)),
        every=draw(st.integers(1, 70)),
        initial_sparsity=draw(st.sampled_from([0.0, 0.3])),
    )


@pytest.mark.parametrize(
    ("curve", "budgets"),
    [
        ("linear", [1000, 775, 550, 325, 100]),
        ("cubic", [1000, 479, 212, 114, 100]),
        ("geometric", [1000, 562, 316, 177, 100]),
    ],
)
def test_budgets_worked_out_by_hand(curve: str, budgets: list[int]) -> None:
    plan = Plan.of(1000, 0.9, None, Schedule(curve, begin=10, end=50, every=10), 0.0)
    assert [plan.budget(step) for step in range(10, 51, 10)] == budgets
    assert (plan.budget(0), plan.budget(9), plan.budget(1000)) == (1000, 1000, 100)
    assert list(plan.schedule.renewals(0.9)) == [20, 30, 40, 50]


@given(schedules(), st.integers(1, 500))
def test_budgets_only_fall_and_end_exactly_at_the_target(schedule: Schedule, keep: int) -> None:
    if schedule.initial_sparsity > 1 - keep / 500:
        schedule = Schedule(**schedule.to_dict() | {"initial_sparsity": 0.0})
    plan = Plan.of(500, None, keep, schedule, 0.0)
    budgets = [plan.budget(step) for step in range(schedule.last + 3)]
    assert budgets == sorted(budgets, reverse=True)
    assert budgets[schedule.last] == budgets[-1] == keep
    assert all(budget == 500 for budget in budgets[: schedule.begin])


@given(schedules(), st.sampled_from([0.0, 0.5, 0.9999]))
def test_the_next_renewal_is_the_next_of_all(schedule: Schedule, target: float) -> None:
    if schedule.initial_sparsity > target:
        schedule = Schedule(**schedule.to_dict() | {"initial_sparsity": 0.0})
    found = list(schedule.renewals(target))
    steps = range(schedule.last + 3)
    assert found == [step for step in steps if schedule.renews(step, target)]
    for step in steps:
        later = [renewal for renewal in found if renewal > step]
        assert schedule.after(step, target) == (later[0] if later else None)
    assert not target or found[-1] == schedule.last


def test_one_shot_renews_once() -> None:
    schedule = Schedule("one-shot", begin=7)
    assert list(schedule.renewals(0.9)) == [7]
    assert [schedule.sparsity(step, 0.9) for step in (0, 6, 7, 8)] == [0.0, 0.0, 0.9, 0.9]
    assert schedule == Schedule(**schedule.to_dict())
    assert str(schedule) == "one-shot, step 7"


def test_a_sparsity_that_stays_is_renewed_all_the_same() -> None:
    schedule = Schedule("cubic", end=4, every=2, initial_sparsity=0.9)
    assert list(schedule.renewals(0.9)) == [0, 2, 4]
    assert [schedule.sparsity(step, 0.9) for step in range(5)] == [0.9] * 5


def test_a_schedule_is_json_and_back() -> None:
    schedule = Schedule("geometric", begin=3, end=900, every=15, initial_sparsity=0.25)
    assert Schedule(**json.loads(json.dumps(schedule.to_dict()))) == schedule
    assert str(schedule) == "geometric, steps 3 to 900, every 15, from 25 %"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"curve": "quartic", "end": 3}, "unknown schedule 'quartic'; known: one-shot, linear"),
        ({"curve": "linear"}, "a linear schedule needs end="),
        (
            {"curve": "linear", "begin": 5, "end": 5},
            r"expected end to be .* at least 6 \(begin=5\), got 5",
        ),
        (
            {"curve": "linear", "begin": -1, "end": 5},
            "expected begin to be a whole number of steps, at least 0, got -1",
        ),
        ({"curve": "linear", "end": 5, "every": 0}, "expected every .* got 0"),
        ({"curve": "linear", "end": 5.0}, "expected end .* got 5.0"),
        ({"curve": "linear", "end": 5, "initial_sparsity": 1}, "got initial_sparsity=1"),
        ({"curve": "one-shot", "end": 5}, "prunes once, at step `begin`; leave out end"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TrellisError, match=words):
        Schedule(**options)
