"""Networks that learn from what keeps a hundredth, and go on from it by way of others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.skeleton.small import DATA, FOLD, course, fresh, killed_and_resumed, made, same
from trellis.errors import TrellisError
from trellis.skeleton.shrink import Maker, Small, course_named
from trellis.training import Training, Weights

TOTAL = 3 * 16 + 3 * 18 * 8 + 3 * 4 * 3 * 8
TENTH = TOTAL // 10
WAYPOINT = TOTAL // 16  # 48


@pytest.fixture(autouse=True)
def _a_tenth() -> Iterator[None]:
    """A hundredth of so small a network is no network: here it is a tenth, and a thousandth a
    sixteenth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trellis.skeleton.shrink.course._PLENTY", 10)
        patch.setattr("trellis.training.shrink.course.WAYPOINTS", (10, 16))
        yield


def maker(**changes: Any) -> Maker:
    x = torch.from_numpy(fresh().places([DATA.sequences[i] for i in FOLD.train]))
    watch = changes.pop("watch", None)
    y = torch.from_numpy(DATA.labels[FOLD.train])
    return Maker(fresh(), x, y, course(**changes), watch=watch)


def inside(small: Small, i: int, large: Small, j: int) -> bool:
    return all(bool((~mask[i] | large.masks[name][j]).all()) for name, mask in small.masks.items())


def alike(one: Small, i: int, other: Small, j: int) -> bool:
    return all(torch.equal(mask[i], other.masks[name][j]) for name, mask in one.masks.items()) and (
        all(torch.allclose(w[i], other.weights[name][j], atol=1e-5) for name, w in
            one.weights.items())
    )  # fmt: skip


def test_a_teacher_is_what_keeps_a_hundredth_by_itself() -> None:
    teaches, alone = maker(), maker(distill=False)
    dense = teaches.train([5, 6])
    teachers = teaches.teachers(dense, [5, 6])
    by_itself = alone.shrink(dense, [5, 6], [TENTH] * 2, [0, 1])
    assert alike(teachers, 0, by_itself, 0) and alike(teachers, 1, by_itself, 1)
    assert teaches.teachers(dense, [5, 6]) is teachers  # once


def test_a_smaller_network_is_pruned_from_its_teacher() -> None:
    both = maker()
    dense = both.train([5, 6])
    teachers = both.teachers(dense, [5, 6])
    before = {name: mask.clone() for name, mask in teachers.masks.items()}
    small = both.shrink(dense, [5, 6], [50, 50], [0, 1])
    for i in (0, 1):
        assert sum(int(mask[i].sum()) for mask in small.masks.values()) == 50
        assert inside(small, i, teachers, i) and not inside(small, i, teachers, 1 - i)
    assert all(torch.equal(mask, teachers.masks[name]) for name, mask in before.items())
    larger = both.shrink(dense, [5, 6], [200])
    at_once = maker(curve="one-shot").shrink(dense, [5, 6], [50])
    assert not inside(larger, 0, teachers, 0) and not inside(at_once, 0, teachers, 0)


def test_who_keeps_less_than_a_thousandth_goes_by_way_of_it() -> None:
    """It goes on from what keeps a thousandth, as that is made by itself, but sees other variants
    of the recordings."""
    seen: dict[str, list[int]] = {}

    def watch(now: str, training: Training) -> None:
        seen[now] = training.seeds

    usual = maker(distill=True, watch=watch)
    dense = usual.train([5, 6])
    step = usual.shrink(dense, [5, 6], [WAYPOINT])  # the first alone
    small = usual.shrink(dense, [5, 6], [40])
    assert inside(small, 0, step, 0) and inside(step, 0, usual.teachers(dense, [5, 6]), 0)
    assert len({seeds[0] for seeds in seen.values()}) == len(seen) == 7
    assert (
        seen[f"pruning to {WAYPOINT}"] == [5 + 1_000_003 // 5, 6 + 1_000_003 // 5]
        and f"tuning to {WAYPOINT}" in seen
    )
    before = dict(seen)
    seen.clear()
    usual.shrink(dense, [5, 6], [38])
    assert seen == {"pruning": before["pruning"], "tuning": before["tuning"]}  # the others once
    for changes in ({"distill": False}, {"curve": "one-shot"}):
        at_once = maker(**changes).shrink(dense, [5, 6], [40])
        assert not inside(at_once, 0, step, 0)


@pytest.mark.parametrize("phase", [f"pruning to {WAYPOINT}", f"tuning to {WAYPOINT}"])
def test_killed_at_a_waypoint_it_goes_on_and_ends_the_same(phase: str, tmp_path: Path) -> None:
    resumed, first = killed_and_resumed(phase, 14, tmp_path, keep=40)
    assert first == (phase, 14) and same(resumed.small, made(keep=40).small)


def test_a_search_of_many_at_once_goes_on_after_a_kill(tmp_path: Path) -> None:
    """As on a GPU: networks of all kinds side by side, each kind in files of its own."""
    phases: list[str] = []

    def kill(now: str, training: Training) -> None:
        phases.append(now)
        if now.startswith("search: tuning") and now.endswith(f"from {WAYPOINT}"):
            raise KeyboardInterrupt

    usual = course(distill=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trellis.skeleton.shrink.run._TOGETHER", {"cpu": 32})
        patch.setattr("trellis.training.checkpoint.EVERY", 0.0)
        with pytest.raises(KeyboardInterrupt):
            made(usual, at_least=0.3, folder=tmp_path, watch=kill)
        done = set(phases)
        phases.clear()
        resumed = made(
            usual, at_least=0.3, folder=tmp_path, watch=lambda now, _: phases.append(now)
        )
        clean = made(usual, at_least=0.3)
    name, further = f"{TOTAL}-13", f"{TOTAL}-13 from {WAYPOINT}"
    assert {f"search: pruning {name}", f"search: pruning {further}"} <= done
    assert done & set(phases) == {f"search: tuning {further}"}
    assert resumed.curve == clean.curve and same(resumed.small, clean.small)


def test_waypoints_of_one_serve_another(tmp_path: Path) -> None:
    x = torch.from_numpy(fresh().places([DATA.sequences[i] for i in FOLD.train]))
    y = torch.from_numpy(DATA.labels[FOLD.train])
    kept = Maker(fresh(), x, y, course(distill=True), folder=tmp_path)
    dense = kept.train([5, 6])
    one, other = (kept.shrink(dense, [5, 6], [40], [i], name=str(i)) for i in (0, 1))
    both = maker(distill=True).shrink(dense, [5, 6], [40, 40], [0, 1])
    assert alike(one, 0, both, 0) and alike(other, 0, both, 1)


def test_a_stack_of_all_kinds_is_each_of_them_alone() -> None:
    """Who is taught by itself, who is not, and in which order they come."""
    usual = maker(distill=True)
    dense = usual.train([5, 6])
    wanted, of = [40, 300, 50, TENTH, 40], [1, 0, 0, 1, 0]
    together = usual.shrink(dense, [5, 6], wanted, of)
    for i, (target, which) in enumerate(zip(wanted, of, strict=True)):
        alone = usual.shrink(dense, [5, 6], [target], [which])
        assert sum(int(mask[0].sum()) for mask in alone.masks.values()) == target
        assert alike(alone, 0, together, i)


def test_who_teaches_whom() -> None:
    """A network learns from the teacher made of the same dense network."""
    heard: list[Weights] = []

    def watch(now: str, training: Training) -> None:
        if now == "tuning" and training.teachers is not None:
            heard.append(training.teachers.weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trellis.skeleton.model.gcn_stacks._LITTLE", 0.0)  # whole networks
        two = maker(watch=watch)
        dense = two.train([5, 6, 7])
        teachers = two.teachers(dense, [5, 6, 7])
        two.shrink(dense, [5, 6, 7], [40, 40], [0, 2])
    for name, weight in heard[-1].items():
        assert torch.equal(weight, teachers.weights[name][[0, 2]])


def test_only_what_keeps_less_than_a_hundredth_is_distilled() -> None:
    usual = course(distill=True)
    for keep, teachers in ((40, 1), (TENTH, 0)):
        seen: set[str] = set()
        step = made(usual, keep=keep, watch=lambda now, _, seen=seen: seen.add(now)).small.history
        assert ("tuning teacher" in seen) == bool(teachers) == bool(step[-1]["teachers"])
    assert not course_named("quick").distills(40, TOTAL)
    assert course_named("default").distills(40, TOTAL)


def test_a_search_has_one_teacher_for_all_it_tries() -> None:
    seen: list[tuple[str, int]] = []
    usual = course(distill=True)
    outcome = made(
        usual, at_least=0.3, watch=lambda now, each: seen.append((now, each.epochs_done))
    )
    assert any(point.kept < TENTH for point in outcome.curve)
    for phase in ("search: pruning teacher", "search: tuning teacher"):
        epochs = [epoch for now, epoch in seen if now == phase]
        assert epochs == sorted(set(epochs)) and epochs  # each of them once


def test_a_teacher_that_came_to_nothing_is_not_listened_to() -> None:
    given = course(distill=True)
    wild = dataclasses.replace(given, recipe=dataclasses.replace(given.recipe, tune_rate=1e30))
    with pytest.raises(TrellisError, match=r"training diverged .* in the phase 'tuning teacher'"):
        made(wild, keep=40)
    alone = maker(distill=False)
    dense = alone.train([5, 6])
    dense["dense.weight"][1] = torch.nan  # one of two is enough
    with pytest.raises(TrellisError, match=r"training diverged .* in the phase 'pruning'"):
        alone.shrink(dense, [5, 6], [300, 300], [0, 1])
