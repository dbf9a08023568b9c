"""From recordings to a small recogniser."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import trellis
from tests.skeleton.moving import arms
from trellis import TrellisError
from trellis.select.budget import budget
from trellis.skeleton import Recogniser, evaluated
from trellis.skeleton.shrink import Course, Outcome, course_named, shrink
from trellis.skeleton.shrink import maker as making
from trellis.skeleton.shrink.search import held_out, ladder, smallest
from trellis.train import Training, losses
from trellis.train.batches import batch_count

DATA = arms()
(FOLD,) = DATA.folds
EPOCHS: dict[str, Any] = {
    "epochs": 20, "prune_epochs": 20, "prune_every": 4, "tune_epochs": 20, "batch": None
}  # fmt: skip


def course(**changes: Any) -> Course:
    quick = course_named("quick", **{"teachers": 2} | changes)
    return dataclasses.replace(quick, recipe=dataclasses.replace(quick.recipe, **EPOCHS))


def fresh(**options: Any) -> Recogniser:
    return Recogniser.fresh(DATA, FOLD, chunks=6, heads=3, filters=8, **options)


def made(given: Course | None = None, **options: Any) -> Outcome:
    recogniser = options.pop("recogniser", None) or fresh()
    return shrink(recogniser, options.pop("data", DATA), FOLD, given or course(), **options)


def same(ours: Recogniser, theirs: Recogniser) -> bool:
    mine, other = ours.model.state_dict(), theirs.model.state_dict()
    return mine.keys() == other.keys() and all(torch.equal(mine[n], other[n]) for n in mine)


@pytest.mark.parametrize(
    ("kinds", "basis"),
    [
        (("coordinates",), "chunks"),
        (("coordinates",), "cosines"),
        (("coordinates", "velocity", "bones"), "chunks"),
    ],
)
def test_it_keeps_what_was_asked_for_and_all_of_it_lives(
    kinds: tuple[str, ...], basis: str
) -> None:
    outcome = made(recogniser=fresh(kinds=kinds, basis=basis), sparsity=0.9)
    model = outcome.small.model
    sizes = model.sizes
    audit = trellis.audit(model, torch.zeros(1, sizes["nodes"], sizes["channels"]))
    assert outcome.kept == audit.kept == audit.live == outcome.total // 10
    assert audit.outputs_reached == audit.outputs
    for recogniser in (outcome.dense, outcome.small):
        step = recogniser.history[-1]
        assert step["metrics"]["top1"] == evaluated(recogniser, DATA, FOLD.test).top1
        assert (recogniser.kinds, recogniser.basis) == (kinds, basis)
    assert outcome.small.history[-1]["kept"] == outcome.kept
    assert outcome.dense.history[-1]["metrics"]["train_top1"] > 0.5  # it did learn


@pytest.mark.parametrize(
    "changes",
    [
        {"teachers": 0},
        {"weight": 0.3},
        {"method": "chains"},
        {"augmentation": None},
        {"method": "synflow"},
        {"curve": "one-shot"},
        {"method": "magnitude by layer", "sensitivity": 0.0},
    ],
    ids=str,
)
def test_every_part_can_be_changed(changes: dict[str, Any]) -> None:
    outcome = made(course(**changes), keep=60)
    masks = trellis.masks_of(outcome.small.model)
    assert masks.kept == 60
    assert not same(outcome.small, made(keep=60).small)


def test_the_same_seed_gives_the_same_network_and_another_another() -> None:
    first, again, other = (made(keep=60, seed=seed) for seed in (1, 1, 2))
    assert same(first.small, again.small) and same(first.dense, again.dense)
    assert not same(first.small, other.small) and not same(first.dense, other.dense)


@pytest.mark.parametrize(
    ("phase", "epoch"),
    [("training", 11), ("pruning", 11), ("pruning", 13), ("pruning", 17), ("tuning", 11)],
)
def test_killed_in_any_phase_it_goes_on_and_ends_the_same(
    phase: str, epoch: int, tmp_path: Path
) -> None:
    class Killed(Exception):
        pass

    def kill(now: str, training: Training) -> None:
        if now == phase and training.epochs_done == epoch:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trellis.train.checkpoint.EVERY", 0.0)
        with pytest.raises(Killed):
            made(keep=60, folder=tmp_path, watch=kill)
    seen: list[tuple[str, int]] = []
    resumed = made(
        keep=60, folder=tmp_path, watch=lambda now, each: seen.append((now, each.epochs_done))
    )
    assert seen[0] == (phase, epoch)  # the epoch that was not kept is done again, none before it
    assert same(resumed.small, made(keep=60).small)
    with pytest.raises(TrellisError, match="another training"):
        made(keep=61, folder=tmp_path)
    with pytest.raises(TrellisError, match="another training"):
        made(keep=60, folder=tmp_path, recogniser=fresh(basis="cosines"))


@pytest.mark.parametrize(("name", "tuned"), [("default", 0.0), ("quick", 0.1)])
def test_where_labels_are_smoothed(name: str, tuned: float) -> None:
    """Not for networks that teach, nor, by default, while one is tuned."""
    seen: list[tuple[str, float]] = []
    for teachers in (0, 1):
        given = course_named(name, teachers=teachers, tries=1)
        given = dataclasses.replace(given, recipe=dataclasses.replace(given.recipe, **EPOCHS))
        made(given, keep=60, watch=lambda phase, each: seen.append((phase, each.smoothing)))
    assert sorted(set(seen)) == [
        ("pruning", 0.1), ("training", 0.0), ("training", 0.1), ("tuning", tuned),
    ]  # fmt: skip


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
    alone = one.shrink(dense, [60], [5], None)
    counts.clear()
    tried = three.shrink(dense, [60], [5], None)
    assert [counts["pruning", epoch] for epoch in range(1, 21)] == [1] * 12 + [3] * 8
    assert {counts["tuning", epoch] for epoch in range(1, 21)} == {3}
    first = tried.first()
    for name, mask in alone.masks.items():
        assert torch.equal(mask, first.masks[name])
        torch.testing.assert_close(alone.weights[name], first.weights[name])
    assert len(set(tried.losses.tolist())) == 3
    short = dataclasses.replace(three.course.recipe, prune_epochs=1, prune_every=1)
    three.course = dataclasses.replace(three.course, recipe=short)
    assert len(three.shrink(dense, [60], [5], None).losses) == 3  # they part where they begin


@pytest.mark.parametrize("changes", [{}, {"drop": 0.3}, {"method": "synflow", "tries": 2}])
def test_narrow_or_whole_the_networks_are_the_same(changes: dict[str, Any]) -> None:
    """What a CPU leaves out on the way is what counts for nothing."""
    shapes: dict[bool, set[int]] = {}
    found = []
    for whole in (False, True):
        shapes[whole] = set()

        def watch(now: str, training: Training, seen: set[int] = shapes[whole]) -> None:
            seen.add(training.weights["dense.weight"].shape[2])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trellis.skeleton.shrink.course._PLENTY", 10)
            if whole:
                patch.setattr("trellis.skeleton.narrow._LITTLE", 0.0)
            found.append(made(course(**changes), keep=60, watch=watch))
    assert shapes[True] == {4 * 3 * 8} < shapes[False]
    ours, theirs = (each.small.model for each in found)
    assert trellis.masks_of(ours).kept == 60
    for name, mask in trellis.masks_of(ours).items():
        assert torch.equal(mask, trellis.masks_of(theirs)[name])
    for name, weight in ours.state_dict().items():
        torch.testing.assert_close(weight, theirs.state_dict()[name], rtol=1e-3, atol=1e-4)


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
        dense = {
            name: weight.expand(2, *weight.shape[1:]) for name, weight in maker.train([5]).items()
        }
        tried = maker.shrink(dense, [little, much], [5, 5], None)
        assert tried.tries == (8, 1) and len(tried.losses) == 9
        best, first = tried.best(), tried.first()
        assert best.losses.tolist() == [min(tried.losses.tolist()[:8]), tried.losses[8].item()]
        assert first.losses.tolist() == tried.losses[[0, 8]].tolist()
        alone = maker.shrink(
            {name: weight[:1] for name, weight in dense.items()}, [much], [5], None
        )
        for name, mask in alone.masks.items():
            assert torch.equal(mask[0], best.masks[name][1]) and best.masks[name][1].any()
        assert sum(int(mask[0].sum()) for mask in best.masks.values()) == little
        told = making.Maker(fresh(), x, given, dataclasses.replace(usual, tries=2))
        assert told.shrink(dense, [little, much], [5, 5], None).tries == (2, 2)


@pytest.mark.parametrize("total", [2_139_024, 612_608, 702_528, 461_712, 7_808])
def test_to_remove_99_percent_takes_one_try_and_all_of_drop(total: int) -> None:
    """Though budgets are rounded down, to a little less than a hundredth."""
    usual = course_named("default")
    for removed, tries in ((0.9, 1), (0.99, 1), (0.991, 8), (0.999, 8)):
        kept = budget(total, removed)
        assert usual.tries_at(kept, total) == tries
        assert (usual.dropped(kept, total) == usual.drop) == (tries == 1)


def test_a_network_of_another_kind_does_not_go_on(tmp_path: Path) -> None:
    """ReLU and absolute values have the same weights to begin with."""

    def kill(now: str, training: Training) -> None:
        if now == "pruning":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(recogniser=fresh(activation="abs"), keep=60, folder=tmp_path, watch=kill)
    with pytest.raises(TrellisError, match=r"architecture.activation was 'abs' and is 'relu'"):
        made(keep=60, folder=tmp_path)


def test_hidden_units_are_dropped_while_they_can_be_spared() -> None:
    """Not from the dense network, and the less the less a network will keep."""
    for keep, share in ((300, 0.3), (60, 0.3 * (1 + np.log10(60 / 768 / 0.1)))):
        seen: dict[str, Any] = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trellis.skeleton.shrink.course._PLENTY", 10)
            made(
                course(drop=0.3), keep=keep,
                watch=lambda now, each, seen=seen: seen.update({now: each.dropping}),
            )  # fmt: skip
        assert seen["training"] is None
        assert seen["pruning"].shares == seen["tuning"].shares == [pytest.approx(share)]
    seen = {}
    made(keep=300, watch=lambda now, each: seen.update({now: each.dropping}))
    assert set(seen.values()) == {None}  # a quick course has no time for it
    for drop in (-0.1, 1.0, float("nan")):
        with pytest.raises(TrellisError, match=f"drop={drop!r} is not a share from 0 to below 1"):
            course(drop=drop)


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
        with pytest.raises(TrellisError, match="--sparsity instead of --at-least"):
            held_out(classes, chosen, seed)
        return
    learn, judge = held_out(classes, chosen, seed)
    assert sorted([*learn, *judge]) == chosen.tolist()
    for label in np.unique(classes):
        held = int((classes[judge] == label).sum())
        assert held == (max(counts[label] // 4, 1) if counts[label] > 1 else 0)


def test_refusals() -> None:
    with pytest.raises(TrellisError, match="give one of sparsity"):
        made()
    with pytest.raises(TrellisError, match="give one of sparsity"):
        made(sparsity=0.9, keep=10)
    with pytest.raises(TrellisError, match=r"at_least=90 is not an accuracy"):
        made(at_least=90)
    with pytest.raises(TrellisError, match=r"8 connections may not be enough.*keep 9 or more"):
        made(keep=8)
    with pytest.raises(TrellisError, match="teachers=-1 is not a whole number from 0 to 100"):
        course(teachers=-1)
    for tries in (0, -1, True, 1.5, 101):
        with pytest.raises(
            TrellisError, match=f"tries={tries} is not a whole number from 1 to 100"
        ):
            course(tries=tries)
    with pytest.raises(TrellisError, match=r"weight=0.0 lets 2 teachers teach nothing"):
        course(weight=0.0)
    with pytest.raises(TrellisError, match="'best' is unknown: viterbi, synflow"):
        course(method="best")
    with pytest.raises(TrellisError, match="course 'slow' is unknown"):
        course_named("slow")


@given(
    st.sampled_from(["default", "quick"]), st.integers(1, 100_000), st.sampled_from([0.01, 1, 3])
)
def test_a_course_takes_as_many_steps_on_a_set_of_any_size(
    name: str, recordings: int, length: float
) -> None:
    usual = course_named(name).times(length)
    suited = usual.suited(recordings).recipe
    batches = batch_count(recordings, suited.batch)
    for phase in ("epochs", "prune_epochs", "tune_epochs"):
        epochs, own = getattr(suited, phase), getattr(usual.recipe, phase)
        steps = own * batch_count(600, suited.batch)
        assert abs(epochs * batches - steps) <= batches / 2 or epochs == min(own, 40)
    renewals = suited.prune_epochs / suited.prune_every
    assert renewals <= 2 * usual.recipe.prune_epochs / usual.recipe.prune_every
    assert usual.suited(600) == usual
