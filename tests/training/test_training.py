"""Many networks at once are trained as each would be alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training import reference
from tests.training.networks import OPTIONS, gcn, recordings, some_masks
from trellis.errors import TrellisError
from trellis.training import (
    Recipe,
    Training,
    accuracies,
    forward_of,
    losses,
    predictions,
    recipe_named,
    stack,
)

SEEDS = (3, 0, 11)
RECIPES = {
    "paper": recipe_named("paper", epochs=20, rate=0.01),
    "default": recipe_named("default", epochs=20, rate=0.01),
    "batches": recipe_named("default", epochs=7, rate=0.01, batch=10),  # 3 a epoch, 21 steps
    "paper batches": recipe_named("paper", epochs=7, rate=0.01, batch=10),
}


def trained(
    seeds: tuple[int, ...],
    recipe: Recipe,
    *,
    masks: list[dict[str, Tensor]] | None = None,
    epochs: int | None = None,
    **options: Any,
) -> Training:
    models = [gcn(seed, **options) for seed in seeds]
    x, y = recordings(30)
    stacked = None
    if masks is not None:
        stacked = {name: torch.stack([one[name] for one in masks]) for name in masks[0]}
    training = Training(
        forward_of(models[0]), stack(models), x, y, recipe, seeds=seeds, masks=stacked
    )
    for _ in range(recipe.epochs if epochs is None else epochs):
        training.epoch()
    return training


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", RECIPES)
def test_stacked_and_one_by_one_and_plain_torch_agree(name: str, masked: bool) -> None:
    recipe = RECIPES[name]
    masks = [some_masks(seed, gcn(seed)) for seed in SEEDS] if masked else None
    together = trained(SEEDS, recipe, masks=masks)
    moved = 0.0
    for i, seed in enumerate(SEEDS):
        mine = masks[i] if masks is not None else None
        alone = trained((seed,), recipe, masks=[mine] if mine is not None else None)
        model = gcn(seed)
        x, y = recordings(30)
        reference.train(model, x, y, recipe, recipe.epochs, seed=seed, masks=mine)
        for n, parameter in model.named_parameters():
            found = together.weights[n][i]
            torch.testing.assert_close(found, alone.weights[n][0], rtol=0, atol=1e-9)
            torch.testing.assert_close(found, parameter.detach(), rtol=0, atol=1e-9)
            moved = max(moved, float((found - gcn(seed).state_dict()[n]).abs().max()))
    assert moved > 0.05


@pytest.mark.parametrize("name", OPTIONS)
def test_every_architecture_trains_as_it_would_alone(name: str) -> None:
    recipe = RECIPES["default"]
    together = trained((1, 2), recipe, **OPTIONS[name])
    x, y = recordings(30)
    for i, seed in enumerate((1, 2)):
        model = gcn(seed, **OPTIONS[name])
        reference.train(model, x, y, recipe, recipe.epochs, seed=seed)
        for n, parameter in model.named_parameters():
            torch.testing.assert_close(
                together.weights[n][i], parameter.detach(), rtol=0, atol=1e-9
            )


@pytest.mark.parametrize("tune_smoothing", [None, 0.0, 0.4])
def test_tuning_smooths_labels_as_the_recipe_says(tune_smoothing: float | None) -> None:
    recipe = recipe_named("default", tune_epochs=5, tune_smoothing=tune_smoothing)
    one, masks = gcn(0), some_masks(0, gcn(0))
    stacked = {n: torch.stack([m]) for n, m in masks.items()}
    x, y = recordings(30)
    training = Training(
        forward_of(one), stack([one]), x, y, recipe, seeds=[0], masks=stacked, tune=True
    )
    while not training.done:
        training.epoch()
    reference.train(one, x, y, recipe, 5, seed=0, masks=masks, tune=True)
    for name, parameter in one.named_parameters():
        torch.testing.assert_close(training.weights[name][0], parameter.detach(), rtol=0, atol=1e-9)


def test_what_is_removed_stays_removed() -> None:
    """Through momentum and weight decay, to the bit; what is kept moves."""
    recipe = recipe_named("default", tune_epochs=12, tune_rate=0.05, decay=0.5)
    masks = {n: torch.stack([m]) for n, m in some_masks(0, gcn(0)).items()}
    x, y = recordings(30)
    training = Training(
        forward_of(gcn(0)), stack([gcn(0)]), x, y, recipe, seeds=[0], masks=masks, tune=True
    )
    before = {name: weight.clone() for name, weight in training.weights.items()}
    assert training.epochs == 12 and training.first_rate == 0.05
    while not training.done:
        training.epoch()
        for name, mask in masks.items():
            assert (training.weights[name][~mask] == 0).all()
    for name, mask in masks.items():
        moved = training.weights[name] != before[name]
        assert moved[mask].float().mean() > 0.9


def test_attention_never_leaves_a_limit() -> None:
    training = trained((0,), RECIPES["default"], **OPTIONS["limit"])
    attention = training.weights["blocks.0.attention"][0]
    edges = OPTIONS["limit"]["adjacency"].expand_as(attention) != 0
    assert (attention[~edges] == 0).all()
    started = trained((0,), RECIPES["default"], **OPTIONS["start"])
    assert (started.weights["blocks.0.attention"][0][~edges] != 0).any()


@pytest.mark.parametrize("name", RECIPES)
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    once, again = (trained(SEEDS, RECIPES[name], epochs=4) for _ in range(2))
    assert all(torch.equal(w, again.weights[n]) for n, w in once.weights.items())
    other = trained((4, 5, 6), RECIPES[name], epochs=4)
    assert not any(torch.equal(w, other.weights[n]) for n, w in once.weights.items())


def test_noise_is_new_at_every_step_and_for_every_network() -> None:
    x, y = recordings(30)
    recipe = recipe_named("default", noise=0.5, epochs=3)
    model = gcn(0)
    training = Training(forward_of(model), stack([model] * 2), x, y, recipe, seeds=[0, 1])
    seen = []
    for _ in range(2):
        training.epoch()
        seen += [noisy - x for noisy in training.inputs.clone()]
    for i, one in enumerate(seen):
        assert float(one.std()) == pytest.approx(0.5, rel=0.1)
        for other in seen[:i]:
            assert abs(float((one * other).mean())) < 0.05


def test_single_precision_inputs_for_double_precision_networks() -> None:
    x, y = recordings(30)
    model = gcn(0)
    training = Training(
        forward_of(model), stack([model]), x.float(), y, RECIPES["paper"], seeds=[0]
    )
    training.epoch()
    assert training.weights["dense.weight"].dtype == torch.float64


def test_bf16_on_a_cpu_is_fp32_rounded_the_same_twice_and_learns() -> None:
    x, y = recordings(30)
    masks = {n: torch.stack([m]) for n, m in some_masks(0, gcn(0)).items()}
    recipe = recipe_named("default", epochs=120, rate=0.01, noise=0.0)
    runs = []
    for precision in ("fp32", "bf16", "bf16"):
        model = gcn(0).float()
        training = Training(
            forward_of(model), stack([model]), x.float(), y, recipe, seeds=[0], masks=masks,
            precision=precision,
        )  # fmt: skip
        training.epoch()
        first = float(training.loss)
        while not training.done:
            training.epoch()
        runs.append((first, training.weights, float(training.hits)))
    (exact, plain, _), (first, weights, hits), (_, again, _) = runs
    assert first != exact and first == pytest.approx(exact, rel=0.02)
    assert hits > 0.9
    for name, weight in weights.items():
        assert weight.dtype == torch.float32 and torch.equal(weight, again[name])
        assert not torch.equal(weight, plain[name])
        assert (weight[~masks[name]] == 0).all()


def test_predictions_and_losses_are_those_of_the_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trellis.training.trainer.TOGETHER", 22)  # batches of seven
    models = [gcn(seed) for seed in range(3)]
    x, y = recordings(50)
    weights = stack(models)
    said = predictions(forward_of(models[0]), weights, x)
    found = losses(forward_of(models[0]), weights, x, y)
    for i, model in enumerate(models):
        assert torch.equal(said[i], model(x).argmax(1))
        torch.testing.assert_close(found[i], torch.nn.functional.cross_entropy(model(x), y))
    right = accuracies(forward_of(models[0]), weights, x, y)
    assert torch.equal(right, (said == y).float().mean(1))


def test_what_training_refuses() -> None:
    model = gcn(0)
    forward, recipe = forward_of(model), RECIPES["paper"]
    x, y = recordings(30)
    with pytest.raises(TrellisError, match="one seed per network, got 1 seeds for 2"):
        Training(forward, stack([model] * 2), x, y, recipe, seeds=[0])
    with pytest.raises(TrellisError, match="got 29 labels for 30 recordings"):
        Training(forward, stack([model]), x, y[1:], recipe, seeds=[0])
    with pytest.raises(TrellisError, match="0 labels for 0 recordings"):
        Training(forward, stack([model]), x[:0], y[:0], recipe, seeds=[0])
    with pytest.raises(TrellisError, match="unknown precision 'fp8'"):
        Training(forward, stack([model]), x, y, recipe, seeds=[0], precision="fp8")
    with pytest.raises(TrellisError, match="precision='tf32' needs a GPU"):
        Training(forward, stack([model]), x, y, recipe, seeds=[0], precision="tf32")
