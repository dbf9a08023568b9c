"""Gradual pruning of a stack."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import trellis
from tests.training.networks import CHANNELS, NODES, gcn, recordings
from trellis import Schedule
from trellis.errors import TrellisError
from trellis.skeleton.model.gcn_stacks import selector
from trellis.training import Training, forward_of, recipe_named, run, stack
from trellis.training.stack_pruning import GradualPruning, SingleSelector

EPOCHS = 12
RECIPE = recipe_named("default", prune_epochs=EPOCHS, prune_every=3, tune_epochs=4)
SCHEDULE = Schedule("geometric", end=EPOCHS, every=3)
TARGETS = (20, 40, 90)


def training(
    targets: tuple[int, ...] = TARGETS,
    seeds: tuple[int, ...] = (0, 1, 2),
    blocks: int = 1,
    surplus: float | None = None,
    masks: dict[str, torch.Tensor] | None = None,
) -> Training:
    models = [gcn(seed, blocks=blocks) for seed in seeds]
    x, y = recordings(30)
    select = selector(models[0].float())
    pruning = GradualPruning(SCHEDULE, targets, select, sensitivity=0.5, surplus=surplus)
    forward = forward_of(models[0].double())
    return Training(
        forward, stack([m.double() for m in models]), x, y, RECIPE, seeds=seeds,
        pruning=pruning, masks=masks,
    )  # fmt: skip


def counts(made: Training) -> list[int]:
    return sum(mask.flatten(1).sum(1) for mask in made.masks.values()).tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize(("blocks", "surplus"), [(1, None), (2, None), (1, 2.5)])
def test_at_every_renewal_the_budget_is_met_and_all_of_it_lives(
    blocks: int, surplus: float | None
) -> None:
    made = training(blocks=blocks, surplus=surplus)
    plans = made.pruning.plans if made.pruning is not None else []
    while not made.done:
        made.epoch()
        renewed = made.epochs_done - made.epochs_done % 3
        expected = [plan.budget(renewed) if renewed else plan.total for plan in plans]
        assert counts(made) == expected
        for i, budget in enumerate(expected):
            model = gcn(0, blocks=blocks)
            trellis.Masks({name: mask[i] for name, mask in made.masks.items()}).apply(model)
            assert trellis.audit(model, torch.zeros(1, NODES, CHANNELS).double()).live == budget
        for name, mask in made.masks.items():
            for tensor in (made.weights[name], made.adam.means[name], made.adam.squares[name]):
                assert (tensor[~mask] == 0).all()
    assert counts(made) == list(TARGETS)


def test_a_surplus_is_where_the_schedule_starts() -> None:
    """Two and a half times a target is a sparsity to start at; where that is more than there is,
    nothing changes."""
    select = selector(gcn(0))
    total = sum(select.sizes.values())
    targets = (20, 40, total // 2)
    given = GradualPruning(SCHEDULE, targets, select, surplus=2.5)
    assert total // 2 * 2.5 > total
    for plan, target, start in zip(given.plans, targets, (50, 100, total), strict=True):
        schedule = Schedule("geometric", end=EPOCHS, every=3, initial_sparsity=1 - start / total)
        for epoch in range(1, EPOCHS + 1):
            expected = total * (1 - schedule.sparsity(epoch, 1 - target / total))
            assert target <= plan.budget(epoch) <= start
            assert plan.budget(epoch) == pytest.approx(expected, abs=1)
    at_once = GradualPruning(Schedule("one-shot", begin=3), (20,), select, surplus=2.5)
    assert [at_once.plans[0].budget(epoch) for epoch in (2, 3)] == [total, 20]


def test_a_network_is_the_same_alone_and_in_a_stack() -> None:
    together = training()
    run(together)
    for i in range(3):
        alone = training(targets=TARGETS[i : i + 1], seeds=(i,))
        run(alone)
        for name, weight in alone.weights.items():
            assert torch.equal(alone.masks[name][0], together.masks[name][i])
            torch.testing.assert_close(weight[0], together.weights[name][i], rtol=0, atol=1e-9)


def test_stopped_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    straight = training()
    run(straight)

    class Stopped(Exception):
        pass

    def stop(each: Training) -> None:
        if each.epochs_done == 8:
            raise Stopped

    path = tmp_path / "checkpoint"
    with pytest.raises(Stopped):
        run(training(), path, every=0, watch=stop)
    resumed = training()
    run(resumed, path)
    for name, tensor in straight.tensors().items():
        assert torch.equal(tensor, resumed.tensors()[name]), name
    other = training(targets=(21, 40, 90))
    with pytest.raises(TrellisError, match=r"another training: pruning\.targets was"):
        run(other, path)
    with pytest.raises(TrellisError, match=r"pruning\.surplus was None and is 2.5"):
        run(training(surplus=2.5), path)


def test_single_selects_as_the_stack_does() -> None:
    models = [gcn(seed).float() for seed in (0, 1)]
    worth = {name: weight.abs() for name, weight in stack(models).items()}
    kept = {name: torch.ones_like(value, dtype=torch.bool) for name, value in worth.items()}
    single = SingleSelector(models[0], torch.zeros(1, NODES, CHANNELS), method="viterbi")
    found = single(worth, kept, [17, 60])
    expected = selector(models[0])(worth, kept, [17, 60])
    assert all(torch.equal(found[name], mask) for name, mask in expected.items())
    assert single.least == selector(models[0]).least


def test_who_was_pruned_before_goes_on_from_there() -> None:
    """Inside the masks that it is given, which stay as they are."""
    before = training(targets=(90, 95, 100))
    while not before.done:
        before.epoch()
    given = {name: mask.clone() for name, mask in before.masks.items()}
    made = training(masks=before.masks)
    assert counts(made) == [90, 95, 100]
    for name, mask in given.items():
        assert (made.weights[name][~mask] == 0).all()
    while not made.done:
        made.epoch()
    assert counts(made) == list(TARGETS)
    for name, mask in given.items():
        assert torch.equal(mask, before.masks[name]) and not (made.masks[name] & ~mask).any()


def test_refusals() -> None:
    with pytest.raises(TrellisError, match=r"11 connections may not be enough.*keep 12 or more"):
        training(targets=(11, 20, 30))
    models = [gcn(0)]
    x, y = recordings(30)
    pruning = GradualPruning(SCHEDULE, (20, 30), selector(models[0]))
    with pytest.raises(TrellisError, match="one pruning target per network"):
        Training(forward_of(models[0]), stack(models), x, y, RECIPE, seeds=[0], pruning=pruning)
