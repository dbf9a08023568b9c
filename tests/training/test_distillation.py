"""Learning from other networks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.training.networks import gcn, recordings
from trellis.errors import TrellisError
from trellis.training import Teachers, Training, forward_of, recipe_named, stack
from trellis.training.batches import Noise

SEEDS = (3, 5)
RECIPE = recipe_named("default", epochs=4, rate=0.01)


def taught(teachers: Teachers | None, seeds: tuple[int, ...] = SEEDS) -> Training:
    models = [gcn(seed) for seed in seeds]
    x, y = recordings(20)
    training = Training(
        forward_of(models[0]), stack(models), x, y, RECIPE, seeds=seeds, teachers=teachers
    )
    while not training.done:
        training.epoch()
    return training


def teachers(*seeds: int, weight: float = 0.7, temperature: float = 2.0) -> Teachers:
    models = [gcn(seed, heads=2) for seed in seeds]  # of another size than those they teach
    return Teachers(forward_of(models[0]), stack(models), weight, temperature)


def test_the_loss_is_the_definition() -> None:
    two = teachers(7, 8)
    student = gcn(1)
    x, _ = recordings(20)
    inputs = torch.stack([x, x + 0.1])
    logits = torch.stack([student(part) for part in inputs])
    found = two.losses(logits, inputs)
    for i, part in enumerate(inputs):
        said = [F.softmax(gcn(seed, heads=2)(part) / 2, dim=1) for seed in (7, 8)]
        wanted: Tensor = (said[0] + said[1]) / 2
        own = F.log_softmax(student(part) / 2, dim=1)
        kl = F.kl_div(own, wanted, reduction="batchmean") * 4
        assert torch.allclose(found[i], kl, rtol=1e-9)


def test_own_teachers_teach_nobody_else() -> None:
    """One for each of two networks."""
    x, _ = recordings(20)
    inputs = torch.stack([x, x + 0.1])
    own = replace(teachers(7, 8), own=True)
    said = own.probabilities(inputs, x.dtype)
    for i, seed in enumerate((7, 8)):
        alone = teachers(seed).probabilities(inputs[i : i + 1], x.dtype)
        assert torch.allclose(said[i], alone[0], rtol=1e-9)
    with pytest.raises(TrellisError, match="one teacher per network, got 3 teachers for 2"):
        taught(replace(teachers(7, 8, 9), own=True))


def test_teachers_without_weight_teach_nothing() -> None:
    alone, deaf = taught(None), taught(teachers(7, weight=0.0))
    for name, weight in alone.weights.items():
        assert torch.allclose(weight, deaf.weights[name], atol=1e-12)


def test_a_network_that_says_what_its_teacher_says_has_nothing_to_learn() -> None:
    model = gcn(1)
    own = Teachers(forward_of(model), stack([model]), weight=1.0, temperature=3.0)
    x, _ = recordings(20)
    assert own.losses(model(x)[None], x[None]).abs().max() < 1e-12


def test_taught_together_and_alone_agree() -> None:
    together = taught(teachers(7, 8))
    for i, seed in enumerate(SEEDS):
        alone = taught(teachers(7, 8), (seed,))
        for name, weight in alone.weights.items():
            assert (weight[0] - together.weights[name][i]).abs().max() < 1e-9
    untaught = taught(None)
    assert not torch.allclose(untaught.weights["dense.weight"], together.weights["dense.weight"])


def test_another_feed_takes_the_place_of_noise() -> None:
    """Noise handed over as a feed is the recipe's own."""
    models = [gcn(seed) for seed in SEEDS]
    x, y = recordings(20)
    feed = Noise(SEEDS, RECIPE.noise, x.device)
    training = Training(forward_of(models[0]), stack(models), x, y, RECIPE, seeds=SEEDS, feed=feed)
    while not training.done:
        training.epoch()
    for name, weight in taught(None).weights.items():
        assert torch.equal(weight, training.weights[name])


@pytest.mark.parametrize(
    ("weight", "temperature", "message"),
    [
        (1.5, 2.0, "weight=1.5"),
        (0.5, 0.0, "temperature=0.0"),
        (0.5, float("nan"), "nan"),
        (0.5, 1e300, "1e"),
        (0.5, 1e-300, "1e"),
    ],
)
def test_nonsense_is_refused(weight: float, temperature: float, message: str) -> None:
    with pytest.raises(TrellisError, match=message):
        teachers(7, weight=weight, temperature=temperature)
