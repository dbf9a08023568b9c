"""Two variants of a recording: which are seen, how far apart the answers are, and what it does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.training.killed import Killed, kill_after
from tests.training.networks import gcn, recordings
from trellis.errors import TrellisError
from trellis.training import Training, forward_of, recipe_named, run, stack
from trellis.training.batches import Agreement, batch_indices

MODELS = [gcn(seed) for seed in (1, 2)]
FORWARD = forward_of(MODELS[0])


def training(
    weight: float | None, networks: tuple[int, ...] = (0, 1), batch: int | None = 7
) -> Training:
    x, y = recordings(20)
    recipe = recipe_named("default", epochs=30, batch=batch, noise=0.5, rate=0.01, decay=0.0)
    return Training(
        FORWARD, stack([MODELS[i] for i in networks]), x, y, recipe, seeds=networks,
        agreement=None if weight is None else Agreement(weight),
    )  # fmt: skip


def trained(*settings: Any) -> dict[str, Tensor]:
    made = training(*settings)
    while not made.done:
        made.epoch()
    return made.weights


def apart(weights: dict[str, Tensor]) -> Tensor:
    """How far apart a network's answers to two variants are, as it is defined."""
    x, _ = recordings(20)
    generator = torch.Generator().manual_seed(3)
    first, second = (
        x + 0.5 * torch.randn(x.shape, generator=generator, dtype=x.dtype) for _ in range(2)
    )
    both = torch.cat([first, second])
    return Agreement().losses(FORWARD(weights, both.expand(2, *both.shape)))


@given(st.integers(1, 40), st.none() | st.integers(1, 12), st.integers(0, 5))
def test_batches_are_as_large_as_without_and_hold_recordings_twice(
    count: int, most: int | None, epoch: int
) -> None:
    usual, found = batch_indices(count, most, epoch), Agreement().indices(count, most, epoch)
    assert [len(batch) for batch in found] == [len(batch) for batch in usual]
    seen: list[int] = []
    for batch in found:
        half = len(batch) // 2
        assert torch.equal(batch[:half], batch[half : 2 * half])
        seen += batch[half:].tolist()
    assert len(set(seen)) == len(seen) and set(seen) <= set(range(count))


@pytest.mark.parametrize("most", [None, 4])
def test_no_recording_is_left_out_for_ever(most: int | None) -> None:
    """Even where all of them make one batch, which has them in their own order without it."""
    seen = {
        int(i) for epoch in range(20) for batch in Agreement().indices(11, most, epoch)
        for i in batch
    }  # fmt: skip
    assert seen == set(range(11))


@given(st.integers(1, 3), st.integers(1, 7), st.integers(2, 4), st.integers(0, 99))
def test_how_far_apart_answers_are(networks: int, batch: int, classes: int, seed: int) -> None:
    """By the definition: the divergence of each answer from the other, one pair after another."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(networks, batch, classes, generator=generator, dtype=torch.float64)
    half = batch // 2
    for said, found in zip(logits.softmax(2), Agreement().losses(logits), strict=True):
        wanted = 0.0
        for i in range(half):
            for p, q in ((said[i], said[half + i]), (said[half + i], said[i])):
                wanted += sum(float(a) * math.log(a / b) for a, b in zip(p, q, strict=True)) / 2
        assert float(found) == pytest.approx(wanted / max(half, 1), abs=1e-12)


def test_networks_that_agree_say_the_same_of_variants() -> None:
    plain, agreeing = apart(trained(None)), apart(trained(10.0))
    assert (agreeing < plain / 2).all()


@pytest.mark.parametrize("batch", [7, None])
def test_a_network_trains_the_same_in_any_company(batch: int | None) -> None:
    both, alone = trained(1.0, (0, 1), batch), trained(1.0, (1,), batch)
    for name, weight in alone.items():
        torch.testing.assert_close(both[name][1], weight[0], rtol=0, atol=1e-11)


def test_a_training_that_was_killed_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trellis.training.checkpoint.EVERY", 0)

    with pytest.raises(Killed):
        run(training(1.0), tmp_path / "c.safetensors", watch=kill_after(2))
    for other in (2.0, None):
        with pytest.raises(TrellisError, match="agreement"):
            run(training(other), tmp_path / "c.safetensors")
    again = training(1.0)
    run(again, tmp_path / "c.safetensors")
    for name, weight in trained(1.0).items():
        assert torch.equal(weight, again.weights[name])


@pytest.mark.parametrize("weight", [0, -1.0, math.nan, math.inf, "1", True])
def test_no_weight_that_is_none(weight: Any) -> None:
    with pytest.raises(TrellisError, match=f"agreement={weight!r} is not a finite number above 0"):
        Agreement(weight)
