"""Leaving out hidden units: what is left out, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.killed import Killed, kill_after
from tests.training.networks import gcn, recordings
from trellis.errors import TrellisError
from trellis.training import Training, forward_of, recipe_named, run, stack
from trellis.training.batches import Dropout

NAME = "dense.weight"
MODELS = [gcn(seed) for seed in (1, 2)]
UNITS = MODELS[0].get_parameter(NAME).shape[1]
CPU = torch.device("cpu")


def training(rates: list[float], networks: tuple[int, ...] = (0, 1), **options: Any) -> Training:
    weights = stack([MODELS[i] for i in networks])
    x, y = recordings(20)
    given = recipe_named("default", epochs=4, batch=7, noise=0.0, **options)
    dropout = Dropout(NAME, rates, UNITS, networks, CPU) if any(rates) else None
    return Training(forward_of(MODELS[0]), weights, x, y, given, seeds=networks, dropout=dropout)


def trained(*given: Any, **options: Any) -> dict[str, Tensor]:
    made = training(*given, **options)
    while not made.done:
        made.epoch()
    return made.weights


def test_so_many_units_are_left_out_and_the_others_count_for_more() -> None:
    dropout = Dropout(NAME, [0.25, 0.0], 4000, seeds=[3, 4], device=CPU)
    sums = torch.zeros(2)
    for step in range(50):
        dropout.draw(step)
        first, second = dropout.factors[:, 0]
        assert sorted(set(first.tolist())) == pytest.approx([0, 4 / 3])
        assert (second == 1).all()
        sums += dropout.factors.mean((1, 2)) / 50
    assert sums.tolist() == pytest.approx([1, 1], abs=0.01)


def test_the_units_of_a_step_are_the_same_in_any_company_and_others_at_the_next() -> None:
    both = Dropout(NAME, [0.5, 0.3], UNITS, seeds=[3, 4], device=CPU)
    alone = Dropout(NAME, [0.3], UNITS, seeds=[4], device=CPU)
    both.draw(7)
    alone.draw(8)
    other = alone.factors.clone()
    alone.draw(7)
    assert torch.equal(both.factors[1], alone.factors[0])
    assert not torch.equal(other, alone.factors)


def test_a_network_without_dropped_units_gives_the_same_logits() -> None:
    """The definition: units that are left out are zero, in the network itself."""
    weights, x = stack(MODELS), recordings(5)[0].expand(2, -1, -1, -1)
    dropout = Dropout(NAME, [0.4, 0.2], UNITS, seeds=[0, 1], device=CPU)
    dropout.draw(0)
    found = forward_of(MODELS[0])(dropout.applied(weights), x)
    for model, factors, logits in zip(MODELS, dropout.factors[:, 0], found, strict=True):
        hidden = model.blocks(x[0]).flatten(1) * factors
        torch.testing.assert_close(logits, hidden @ model.dense.weight.T)


def test_a_share_of_none_changes_nothing() -> None:
    plain, dropped = trained([0.0, 0.0]), trained([0.0, 0.5])
    for name, weight in plain.items():
        assert torch.equal(weight[0], dropped[name][0])
        assert not torch.equal(weight[1], dropped[name][1])


def test_a_network_trains_the_same_in_any_company() -> None:
    both, alone = trained([0.2, 0.5]), trained([0.5], (1,))
    for name, weight in alone.items():
        torch.testing.assert_close(both[name][1], weight[0], rtol=0, atol=1e-12)


def test_a_training_that_was_killed_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trellis.training.checkpoint.EVERY", 0)
    wanted = trained([0.3, 0.3])

    with pytest.raises(Killed):
        run(training([0.3, 0.3]), tmp_path / "c.safetensors", watch=kill_after(2))
    again = training([0.3, 0.3])
    run(again, tmp_path / "c.safetensors")
    for name, weight in wanted.items():
        assert torch.equal(weight, again.weights[name])


def test_a_training_that_drops_other_units_does_not_go_on(tmp_path: Path) -> None:
    run(training([0.3, 0.3]), tmp_path / "c.safetensors")
    for other in ([0.3, 0.6], [0.0, 0.0]):
        with pytest.raises(TrellisError, match="dropout"):
            run(training(other), tmp_path / "c.safetensors")


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_no_share_beyond_some(share: float) -> None:
    with pytest.raises(TrellisError, match=f"expected 0 <= dropout rate < 1, got {share!r}"):
        Dropout(NAME, [share], 3, seeds=[0], device=CPU)


def test_a_share_for_each_network() -> None:
    with pytest.raises(TrellisError, match="one dropout rate per network, got 2 for 1"):
        Dropout(NAME, [0.1, 0.2], 3, seeds=[0], device=CPU)
