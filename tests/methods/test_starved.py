"""Starved layers: less than a hundredth of the fair share is kept. Shown, and warned of."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import trellis


def model(scale: float) -> nn.Sequential:
    """A network whose second layer has small weights."""
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4)
    )
    with torch.no_grad():
        layers.get_parameter("2.weight").mul_(scale)
    return layers


X = torch.zeros(1, 64)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 3000)), min_size=1, max_size=5))
def test_starved_is_below_a_hundredth_of_the_fair_share(layers: list[tuple[int, int]]) -> None:
    masks = trellis.Masks(
        {f"w{number}": torch.arange(size) < kept for number, (kept, size) in enumerate(layers)}
    )
    fair = {name: mask.numel() * masks.kept / masks.total for name, mask in masks.items()}
    for name, mask in masks.items():
        kept = int(mask.sum())
        if abs(fair[name] - 100 * kept) > 1e-6 and abs(fair[name] - 1) > 1e-6:
            assert (name in masks.starved) == (fair[name] > 1 and kept < fair[name] / 100)


def test_prune_warns_of_an_emptied_layer_and_prints_it() -> None:
    with pytest.warns(UserWarning, match=r"2\.weight \(0 of 16,384\); compare .*balanced"):
        masks = trellis.prune(model(1e-4), X, sparsity=0.9, method="magnitude")
    assert masks.starved == ("2.weight",)
    assert repr(masks).endswith("; starved: 2.weight (0 of 16,384)")


class Skipping(nn.Module):
    """A wire leads around the second layer, whose weights are small."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.head = (
            nn.Linear(64, 128),
            nn.Linear(128, 128),
            nn.Linear(128, 4),
        )
        with torch.no_grad():
            self.block.weight.mul_(1e-4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.stem(x)
        found: torch.Tensor = self.head(hidden + self.block(hidden))
        return found


def test_a_starved_layer_that_lives_is_named_by_prune_and_audit() -> None:
    torch.manual_seed(0)
    network = Skipping()
    with pytest.warns(UserWarning, match="starved layers") as caught:
        masks = trellis.prune(network, X, sparsity=0.9, scope="global")
    assert len(caught) == 1 and caught[0].filename == __file__
    assert int(masks["block.weight"].sum()) == 1 and masks.starved == ("block.weight",)
    found = trellis.audit(network, X)
    (line,) = [line for line in found.words() if "starved" in line]
    assert line.startswith("`block.weight`: starved, 1 of 16,384 kept") and line in str(found)


def test_nothing_is_starved_in_a_fair_network() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        masks = trellis.prune(model(1.0), X, sparsity=0.9)
    assert masks.starved == () and "starved" not in repr(masks)


def test_the_pruner_warns_once() -> None:
    network = model(1e-4)
    schedule = trellis.Schedule("cubic", end=4, every=1)
    pruner = trellis.Pruner(
        network, X, sparsity=0.9, schedule=schedule, method="magnitude", consistent=False
    )
    with pytest.warns(UserWarning, match="starved layers") as caught:
        while not pruner.done:
            pruner.step()
    assert len(caught) == 1 and caught[0].filename == __file__
    assert pruner.masks.starved == ("2.weight",)
