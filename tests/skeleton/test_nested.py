"""Recognizers of several rates from one training."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import trellis
from tests.skeleton.small import DATA, FOLD, course, fresh, killed_and_resumed, made, same
from trellis.errors import TrellisError
from trellis.methods.budget import count
from trellis.skeleton import Recognizer, evaluated
from trellis.skeleton.shrink import Outcome

BUDGETS = (300, 120, 40)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return made(keep=BUDGETS)


def test_networks_are_nested_consistent_and_exact(outcome: Outcome) -> None:
    nested = outcome.nested
    assert nested is not None and nested.asked == BUDGETS
    assert set(BUDGETS) < set(nested.budgets) and nested.total == outcome.total
    for larger, smaller in pairwise(nested.masks):
        assert all(bool((larger[n] | ~mask).all()) for n, mask in smaller.items())
    sizes = outcome.small.model.sizes
    for masks in nested.masks:
        model = fresh().model
        trellis.Masks(masks).apply(model)
        audit = trellis.audit(model, torch.zeros(1, sizes["nodes"], sizes["channels"]))
        assert audit.live == audit.kept == count(masks)
        assert audit.outputs_reached == audit.outputs


def test_any_rate_comes_out_of_a_folder(outcome: Outcome, tmp_path: Path) -> None:
    outcome.small.save(tmp_path / "m", nested=outcome.nested)
    assert same(Recognizer.load(tmp_path / "m"), outcome.small)
    sizes = outcome.small.model.sizes
    for keep in (300, 211, 120, 77, 40):
        found = Recognizer.load(tmp_path / "m", keep=keep)
        audit = trellis.audit(found.model, torch.zeros(1, sizes["nodes"], sizes["channels"]))
        assert audit.live == audit.kept == keep
        assert found.history[-1]["kept"] == keep
    with pytest.raises(TrellisError, match="expected a sparsity from"):
        Recognizer.load(tmp_path / "m", keep=39)


def test_metrics_are_those_of_each_network(outcome: Outcome, tmp_path: Path) -> None:
    outcome.small.save(tmp_path / "m", nested=outcome.nested)
    assert outcome.nested is not None
    assert [rate["kept"] for rate in outcome.rates if rate["asked"]] == list(BUDGETS)
    for rate in outcome.rates:
        found = Recognizer.load(tmp_path / "m", keep=rate["kept"])
        assert rate["metrics"]["top1"] == evaluated(found, DATA, FOLD.test).top1


def test_biases_of_each_rate() -> None:
    """The weights are shared, and what is not a connection is not."""
    outcome = made(recognizer=fresh(bias=True), keep=BUDGETS)
    nested = outcome.nested
    assert nested is not None
    first, *_, last = nested.others
    assert first and not any(torch.equal(first[name], last[name]) for name in first)
    name = next(iter(first))
    [low, high] = sorted([1, 2])
    between = nested.beside((nested.budgets[low] + nested.budgets[high]) // 2)[name]
    ends = torch.stack([nested.others[low][name], nested.others[high][name]])
    assert bool(((between >= ends.amin(0)) & (between <= ends.amax(0))).all())


@pytest.mark.parametrize(
    ("phase", "epoch"),
    [("training", 7), ("pruning nested 120", 9), ("tuning nested 40", 3), ("tuning together", 30)],
)
def test_killed_and_begun_again_it_ends_the_same(
    outcome: Outcome, phase: str, epoch: int, tmp_path: Path
) -> None:
    again, (went_on, at) = killed_and_resumed(phase, epoch, tmp_path, keep=BUDGETS)
    assert (went_on, at) == (phase, epoch)
    assert outcome.nested is not None and again.nested is not None
    one, other = outcome.nested.tensors(), again.nested.tensors()
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert same(again.small, outcome.small)
    assert again.rates == outcome.rates


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keep": (300, 3)}, "keep 9 or more"),
        ({"sparsity": (0.5, 0.5)}, "expected different rates"),
        ({"given": course(method="magnitude by layer"), "keep": (300, 60)}, "consistent"),
    ],
)
def test_rates_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TrellisError, match=words):
        made(**options)


def test_by_way_of_the_teacher() -> None:
    """Networks below 1 % start from, and learn from, the one at 1 %."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trellis.skeleton.shrink.course._PLENTY", 5)
        patch.setattr("trellis.training.shrink.course.WAYPOINTS", (5, 1000))
        seen: list[str] = []
        made(keep=(300, 40), watch=lambda phase, _: seen.append(phase))
    total = made(keep=300).total
    ways = [phase for phase in dict.fromkeys(seen) if phase.startswith("pruning")]
    assert ways == [f"pruning nested {each}" for each in sorted({300, total // 5, 40})[::-1]]
