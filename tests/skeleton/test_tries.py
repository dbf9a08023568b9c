"""Many tries at a small network: what they share, and which is kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import trellis
from tests.skeleton.small import DATA, FOLD, course, fresh, made, same
from trellis import TrellisError
from trellis.select.budget import budget
from trellis.skeleton import Recogniser
from trellis.skeleton.shrink import course_named
from trellis.skeleton.shrink import maker as making
from trellis.train import Training, losses


def test_of_many_tries_the_one_that_fits_best_is_taken() -> None:
    three, one = course(tries=3), course()
    outcome, alone = made(three, keep=60), made(one, keep=60)
    assert same(outcome.dense, alone.dense)  # which is trained once
    found = outcome.small.history[-1]["losses"]
    assert len(found) == len(set(found)) == 3
    assert found[0] == pytest.approx(alone.small.history[-1]["losses"][0], abs=2e-4)
    x = torch.from_numpy(outcome.small.inputs([DATA.sequences[i] for i in FOLD.train]))
    with torch.no_grad():
        said = outcome.small.model(x)
    own = torch.nn.functional.cross_entropy(said, torch.from_numpy(DATA.labels[FOLD.train]))
    assert float(own) == pytest.approx(min(found), abs=2e-4)
    assert trellis.masks_of(outcome.small.model).kept == 60


def test_tries_are_one_network_until_they_part(tmp_path: Path) -> None:
    """At three fifths of pruning; the first of them is what one try gives."""
    counts: dict[tuple[str, int], int] = {}

    def watch(now: str, training: Training) -> None:
        counts[now, training.epochs_done] = len(training.seeds)

    x = torch.from_numpy(fresh().places([DATA.sequences[i] for i in FOLD.train]))
    given = torch.from_numpy(DATA.labels[FOLD.train])
    three, one = (
        making.Maker(fresh(), x, given, course(teachers=0, tries=tries), watch=watch)
        for tries in (3, 1)
    )
    dense = one.train([5])
    alone = one.shrink(dense, [5], [60])
    counts.clear()
    tried = three.shrink(dense, [5], [60])
    assert [counts["pruning", epoch] for epoch in range(1, 21)] == [1] * 12 + [3] * 8
    assert {counts["tuning", epoch] for epoch in range(1, 21)} == {3}
    first = tried.first()
    for name, mask in alone.masks.items():
        assert torch.equal(mask, first.masks[name])
        torch.testing.assert_close(alone.weights[name], first.weights[name])
    assert len(set(tried.losses.tolist())) == 3
    short = dataclasses.replace(three.course.recipe, prune_epochs=1, prune_every=1)
    three.course = dataclasses.replace(three.course, recipe=short)
    assert len(three.shrink(dense, [5], [60]).losses) == 3  # they part where they begin


def test_only_what_keeps_little_is_tried_often_unless_told() -> None:
    """Networks of both kinds in one stack; all of them as if made alone."""
    total = 3 * 16 + 3 * 18 * 8 + 3 * 4 * 3 * 8
    little, much = round(0.009 * total) + 20, total // 2
    usual = dataclasses.replace(course(teachers=0), tries=None)
    x = torch.from_numpy(fresh().places([DATA.sequences[i] for i in FOLD.train]))
    given = torch.from_numpy(DATA.labels[FOLD.train])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trellis.skeleton.shrink.course._PLENTY", 10)
        maker = making.Maker(fresh(), x, given, usual)
        assert maker.connections == total
        dense = maker.train([5])
        tried = maker.shrink(dense, [5], [little, much])
        assert tried.tries == (8, 1) and len(tried.losses) == 9
        best, first = tried.best(), tried.first()
        assert best.losses.tolist() == [min(tried.losses.tolist()[:8]), tried.losses[8].item()]
        assert first.losses.tolist() == tried.losses[[0, 8]].tolist()
        alone = maker.shrink(dense, [5], [much])
        for name, mask in alone.masks.items():
            assert torch.equal(mask[0], best.masks[name][1]) and best.masks[name][1].any()
        assert sum(int(mask[0].sum()) for mask in best.masks.values()) == little
        told = making.Maker(fresh(), x, given, dataclasses.replace(usual, tries=2))
        assert told.shrink(dense, [5], [little, much]).tries == (2, 2)


@pytest.mark.parametrize("total", [2_139_024, 612_608, 702_528, 461_712, 7_808])
def test_to_remove_99_percent_takes_one_try_and_all_of_drop(total: int) -> None:
    """Though budgets are rounded down, to a little less than a hundredth."""
    usual = course_named("default")
    for removed, tries in ((0.9, 1), (0.99, 1), (0.991, 8), (0.999, 8)):
        kept = budget(total, removed)
        assert usual.tries_at(kept, total) == tries
        assert (usual.dropped(kept, total) == usual.drop) == (tries == 1)


def test_tries_go_on_after_a_kill_and_a_search_tries_once(tmp_path: Path) -> None:
    def kill(now: str, training: Training) -> None:
        if now == "tuning" and training.epochs_done == 11:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trellis.train.checkpoint.EVERY", 0.0)
        with pytest.raises(KeyboardInterrupt):
            made(course(tries=2), keep=60, folder=tmp_path, watch=kill)
    resumed = made(course(tries=2), keep=60, folder=tmp_path)
    assert same(resumed.small, made(course(tries=2), keep=60).small)
    once, twice = (made(course(tries=tries), at_least=0.5) for tries in (1, 2))
    assert (once.curve, once.kept) == (twice.curve, twice.kept)
    assert len(twice.small.history[-1]["losses"]) == 2


def test_tries_that_come_to_nothing_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    true = losses

    def some(*given_: Any) -> torch.Tensor:
        found = true(*given_)
        found[: len(found) - 1] = torch.nan
        return found

    monkeypatch.setattr(making, "losses", some)
    outcome = made(course(tries=2), keep=60)
    outcome.small.save(tmp_path / "s")
    first, second = Recogniser.load(tmp_path / "s").history[-1]["losses"]
    assert first is None and second > 0
    monkeypatch.setattr(making, "losses", lambda *given_: true(*given_) * torch.inf)
    with pytest.raises(TrellisError, match=r"came to nothing: the loss of every try is not"):
        made(course(tries=2), keep=60)


def test_the_dense_network_of_a_killed_run_serves_any_number_of_tries(tmp_path: Path) -> None:
    def kill(now: str, training: Training) -> None:
        if now == "pruning":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(course(tries=2), keep=60, folder=tmp_path, watch=kill)
    seen: list[str] = []
    resumed = made(course(tries=1), keep=60, folder=tmp_path, watch=lambda now, _: seen.append(now))
    assert "training" not in seen and same(resumed.small, made(keep=60).small)
    with pytest.raises(TrellisError, match=r"course\.method was 'viterbi' and is 'synflow'"):
        made(course(method="synflow"), keep=60, folder=tmp_path)


@pytest.mark.parametrize("method", ["viterbi", "magnitude by layer"])
@pytest.mark.parametrize(("phase", "epoch"), [("pruning", 7), ("pruning", 18), ("tuning", 5)])
def test_what_comes_before_tries_part_serves_any_number_of_them(
    phase: str, epoch: int, method: str, tmp_path: Path
) -> None:
    def kill(now: str, training: Training) -> None:
        if (now, training.epochs_done) == (phase, epoch):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trellis.train.checkpoint.EVERY", 0.0)
        with pytest.raises(KeyboardInterrupt):
            made(course(method=method), keep=60, folder=tmp_path, watch=kill)
    seen: list[tuple[str, int]] = []
    three = course(method=method, tries=3)
    resumed = made(
        three, keep=60, folder=tmp_path, watch=lambda now, t: seen.append((now, t.epochs_done))
    )
    assert seen[0] == ("pruning", min(epoch, 13) if phase == "pruning" else 13)
    clean = made(three, keep=60)
    assert same(resumed.small, clean.small)
    assert resumed.small.history[-1]["losses"] == clean.small.history[-1]["losses"]
