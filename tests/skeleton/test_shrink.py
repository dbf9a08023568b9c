"""From recordings to a small recognizer."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import trellis
from tests.skeleton.small import DATA, EPOCHS, FOLD, course, fresh, killed_and_resumed, made, same
from trellis.errors import TrellisError
from trellis.methods.budget import budget
from trellis.skeleton import Fold, Recognizer, evaluated
from trellis.skeleton.shrink import Maker, Small, course_named, shrink
from trellis.training import Training
from trellis.training.batches import batch_count


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
    outcome = made(recognizer=fresh(kinds=kinds, basis=basis), sparsity=0.9)
    model = outcome.small.model
    sizes = model.sizes
    audit = trellis.audit(model, torch.zeros(1, sizes["nodes"], sizes["channels"]))
    assert outcome.kept == audit.kept == audit.live == outcome.total // 10
    assert audit.outputs_reached == audit.outputs
    for recognizer in (outcome.dense, outcome.small):
        step = recognizer.history[-1]
        assert step["metrics"]["top1"] == evaluated(recognizer, DATA, FOLD.test).top1
        assert (recognizer.kinds, recognizer.basis) == (kinds, basis)
    assert outcome.small.history[-1]["kept"] == outcome.kept
    assert outcome.dense.history[-1]["metrics"]["train_top1"] > 0.5  # it did learn


@pytest.mark.parametrize(
    "changes",
    [
        {"distill": False},
        {"method": "chains"},
        {"augmentation": None},
        {"method": "synflow"},
        {"curve": "one-shot"},
        {"surplus": 2.0},
        {"method": "magnitude by layer", "sensitivity": 0.0},
    ],
    ids=str,
)
def test_every_part_can_be_changed(changes: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trellis.skeleton.shrink.course._PLENTY", 10)  # 60 are less than 1 / _PLENTY
        outcome, usual = made(course(**changes), keep=60), made(keep=60)
    masks = trellis.masks_of(outcome.small.model)
    assert masks.kept == 60
    assert not same(outcome.small, usual.small)


def test_the_same_seed_gives_the_same_network_and_another_another() -> None:
    first, again, other = (made(keep=60, seed=seed) for seed in (1, 1, 2))
    assert same(first.small, again.small) and same(first.dense, again.dense)
    assert not same(first.small, other.small) and not same(first.dense, other.dense)


@pytest.mark.parametrize(
    ("phase", "epoch"),
    [
        ("training", 11), ("pruning teacher", 17), ("tuning teacher", 11), ("pruning", 11),
        ("pruning", 13), ("pruning", 17), ("tuning", 11),
    ],
)  # fmt: skip
def test_killed_in_any_phase_it_goes_on_and_ends_the_same(
    phase: str, epoch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trellis.skeleton.shrink.course._PLENTY", 10)
    resumed, first = killed_and_resumed(phase, epoch, tmp_path, keep=60)
    assert first == (phase, epoch)  # the epoch that was not kept is done again, none before it
    assert same(resumed.small, made(keep=60).small)
    with pytest.raises(TrellisError, match="another training"):
        made(keep=61, folder=tmp_path)
    with pytest.raises(TrellisError, match="another training"):
        made(keep=60, folder=tmp_path, recognizer=fresh(basis="cosines"))
    with pytest.raises(TrellisError, match=r"course\.method was 'viterbi' and is 'synflow'"):
        made(course(method="synflow"), keep=60, folder=tmp_path)


@pytest.mark.parametrize("total", [2_139_024, 612_608, 702_528, 461_712, 7_808])
def test_to_remove_99_percent_is_to_keep_a_hundredth(total: int) -> None:
    """Though budgets are rounded down, to a little less than it."""
    usual = course_named("default")
    for removed, little in ((0.9, False), (0.99, False), (0.991, True), (0.999, True)):
        kept = budget(total, removed)
        assert usual.distills(kept, total) == bool(usual.waypoint(kept, total)) == little
        assert (usual.dropout_at(kept, total) < usual.dropout) == little
    assert usual.waypoint(budget(total, 0.999), total) == total // 100
    assert usual.waypoint(budget(total, 0.9995), total) == total // 1000


@pytest.mark.parametrize(
    ("rate", "phase"), [("rate", "training"), ("prune_rate", "pruning"), ("tune_rate", "tuning")]
)
def test_what_came_to_nothing_names_its_phase(rate: str, phase: str) -> None:
    usual, high = course(distill=False), cast("dict[str, Any]", {rate: 1e30})
    wild = dataclasses.replace(usual, recipe=dataclasses.replace(usual.recipe, **high))
    with pytest.raises(TrellisError, match=f"training diverged .* in the phase '{phase}'"):
        made(wild, keep=60)


def test_where_no_more_can_live_fewer_are_kept_and_it_says_so() -> None:
    """As it does not happen with so few connections, one is taken away."""
    true = Maker.shrink

    def fewer(self: Maker, *given: Any) -> Small:
        small = true(self, *given)
        mask = small.masks["dense.weight"]
        mask.view(-1)[int(mask.view(-1).nonzero()[0])] = False
        return small

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Maker, "shrink", fewer)
        outcome = made(keep=60)
    step = outcome.small.history[-1]
    assert (outcome.kept, outcome.budget) == (step["kept"], step["budget"]) == (59, 60)
    assert trellis.masks_of(outcome.small.model).kept == 59


@pytest.mark.parametrize(("name", "tuned"), [("default", 0.0), ("quick", 0.1)])
def test_where_labels_are_smoothed(
    name: str, tuned: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, not while a network is fine-tuned, nor while its teacher is."""
    monkeypatch.setattr("trellis.skeleton.shrink.course._PLENTY", 10)
    seen: list[tuple[str, float]] = []
    given = course_named(name, distill=True)
    given = dataclasses.replace(given, recipe=dataclasses.replace(given.recipe, **EPOCHS))
    made(given, keep=60, watch=lambda phase, each: seen.append((phase, each.smoothing)))
    assert sorted(set(seen)) == [
        ("pruning", 0.1), ("pruning teacher", 0.1), ("training", 0.1), ("tuning", tuned),
        ("tuning teacher", tuned),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keep", "changes"),
    [
        (60, {}),
        (60, {"dropout": 0.3}),
        (90, {"distill": False}),
        (60, {"method": "synflow"}),
    ],
)
def test_narrow_or_whole_the_networks_are_the_same(keep: int, changes: dict[str, Any]) -> None:
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
                patch.setattr("trellis.skeleton.model.gcn_stacks._LITTLE", 0.0)
            found.append(made(course(**changes), keep=keep, watch=watch))
    assert shapes[True] == {4 * 3 * 8} < shapes[False]
    ours, theirs = (each.small.model for each in found)
    assert trellis.masks_of(ours).kept == keep
    for name, mask in trellis.masks_of(ours).items():
        assert torch.equal(mask, trellis.masks_of(theirs)[name])
    for name, weight in ours.state_dict().items():
        torch.testing.assert_close(weight, theirs.state_dict()[name], rtol=1e-3, atol=1e-4)


def test_a_network_of_another_kind_does_not_go_on(tmp_path: Path) -> None:
    """ReLU and absolute values have the same weights to begin with."""

    def kill(now: str, training: Training) -> None:
        if now == "pruning":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(recognizer=fresh(activation="abs"), keep=60, folder=tmp_path, watch=kill)
    with pytest.raises(TrellisError, match=r"architecture.activation was 'abs' and is 'relu'"):
        made(keep=60, folder=tmp_path)


def test_hidden_units_are_dropped_while_they_can_be_spared() -> None:
    """Not from the dense network, and the less the less a network will keep."""
    for keep, share in ((300, 0.3), (60, 0.3 * (1 + np.log10(60 / 768 / 0.1)))):
        seen: dict[str, Any] = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trellis.skeleton.shrink.course._PLENTY", 10)
            made(
                course(dropout=0.3), keep=keep,
                watch=lambda now, each, seen=seen: seen.update({now: each.dropout}),
            )  # fmt: skip
        assert seen["training"] is None
        assert seen["pruning"].rates == seen["tuning"].rates == [pytest.approx(share)]
    seen = {}
    made(keep=300, watch=lambda now, each: seen.update({now: each.dropout}))
    assert set(seen.values()) == {None}  # a quick course has no time for it
    for drop in (-0.1, 1.0, float("nan")):
        with pytest.raises(TrellisError, match=f"expected 0 <= dropout < 1, got dropout={drop!r}"):
            course(dropout=drop)


def test_refusals() -> None:
    with pytest.raises(TrellisError, match="give one of sparsity"):
        made()
    with pytest.raises(TrellisError, match="give one of sparsity"):
        made(sparsity=0.9, keep=10)
    with pytest.raises(TrellisError, match=r"expected an accuracy .* got at_least=90"):
        made(at_least=90)
    with pytest.raises(
        TrellisError, match=r"8 of 768 connections may not be enough.*keep 9 or more"
    ):
        made(keep=8)
    for distill in (0, 1, None, "yes"):
        with pytest.raises(TrellisError, match=f"distill=True or False, got {distill!r}"):
            course(distill=distill)
    for surplus in (0.5, float("nan"), float("inf")):
        with pytest.raises(TrellisError, match=f"got surplus={surplus}"):
            course(surplus=surplus)
    for name in ("dropout", "sensitivity", "surplus"):
        for wrong in ("30", True, [1]):
            with pytest.raises(
                TrellisError, match=re.escape(f"expected a number, got {name}={wrong!r}")
            ):
                course(**{name: wrong})
    with pytest.raises(TrellisError, match=r"expected a method \(.*viterbi.*\), got 'best'"):
        course(method="best")
    with pytest.raises(TrellisError, match="unknown course 'slow'"):
        course_named("slow")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"seed": -1}, "expected a whole number from 0 .* got seed=-1"),
        ({"seed": 2**63}, "expected a whole number .* got seed=9223372036854775808"),
        ({"seed": 1.5}, "expected a whole number .* got seed=1.5"),
        ({"seed": None}, "expected a whole number .* got seed=None"),
        ({"seed": True}, "expected a whole number .* got seed=True"),
        ({"keep": None, "at_least": "0.9"}, "expected a number, got at_least='0.9'"),
        ({"keep": None, "at_least": True}, "expected a number, got at_least=True"),
        ({"keep": None, "at_least": float("nan")}, "expected an accuracy .* got at_least=nan"),
        ({"keep": 60.0}, "keep=60.0 is not a whole number of connections"),
        ({"keep": "60"}, "keep='60' is not a whole number of connections"),
        ({"keep": None, "sparsity": "0.9"}, "sparsity='0.9' is not a number"),
        ({"device": "gpu"}, "expected 'cpu', 'cuda' or 'cuda:N', got device='gpu'"),
        ({"device": "meta"}, "expected 'cpu', 'cuda' or 'cuda:N', got device='meta'"),
        ({"folder": "nowhere/at all"}, "expected an existing folder, got folder='nowhere/at all'"),
        ({"fold": Fold("mine", FOLD.train, FOLD.test[:0])}, "fold 'mine' .* no test recordings"),
        ({"fold": Fold("mine", FOLD.train[:0], FOLD.test)}, "fold 'mine' .* no train recordings"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_trained(
    wrong: dict[str, Any], said: str
) -> None:
    trained: list[str] = []
    options: dict[str, Any] = {"keep": 60, "fold": FOLD} | wrong
    with pytest.raises(TrellisError, match=said):
        shrink(
            fresh(),
            DATA,
            options.pop("fold"),
            course(),
            **options,
            watch=lambda now, _: trained.append(now),
        )
    assert not trained


def test_cuda_where_there_is_none_is_said_before_anything_is_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cuda", torch.device("cuda", 1)):
        with pytest.raises(TrellisError, match=r"has no CUDA device, got device='cuda"):
            made(keep=60, device=device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(
        TrellisError, match="has 2 CUDA devices, from 'cuda:0'; got device='cuda:2'"
    ):
        made(keep=60, device="cuda:2")


def test_numbers_and_folders_of_any_kind_will_do(tmp_path: Path) -> None:
    usual = made(keep=60, seed=3)
    given = made(keep=np.int64(60), seed=np.int64(3), folder=str(tmp_path))
    assert same(given.small, usual.small) and list(tmp_path.glob(".tuning*"))
    given.small.save(tmp_path / "small")
    assert Recognizer.load(tmp_path / "small").history[-1]["seed"] == 3
    made(keep=60, seed=3, folder=tmp_path)  # goes on: they are the same numbers
    found = made(at_least=np.float32(0.9))
    assert type(found.at_least) is float and found.at_least == 0.9
    found.small.save(tmp_path / "found")


def test_no_course_is_longer_than_numbers_go() -> None:
    for length in (0.0, -1.0, 1e7, 1e308, float("inf"), float("nan")):
        with pytest.raises(TrellisError, match="expected a length above 0 and up to 1,000,000"):
            course().times(length)
    assert course().times(1_000_000).recipe.epochs == 20_000_000


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
