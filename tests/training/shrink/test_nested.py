"""One training, several rates: nested, consistent, exact, and resumed with the same bits."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trellis
from trellis import TrellisError
from trellis.methods.budget import count

from .tasks import Net, batches, net, same, shrunk

RATES = (0.5, 0.8, 0.95)
EXAMPLE = torch.zeros(2, 8)


@pytest.fixture(scope="module")
def made() -> trellis.Shrunk:
    return shrunk(net(), sparsity=RATES, steps=60, validation=batches())


def test_networks_are_nested_consistent_and_exact(made: trellis.Shrunk) -> None:
    nested = made.nested
    assert nested is not None
    assert nested.asked == (304, 121, 30)
    assert set(nested.asked) <= set(nested.budgets)
    for larger, smaller in pairwise(nested.masks):
        assert all(bool((larger[n] | ~mask).all()) for n, mask in smaller.items())
    for masks in nested.masks:
        model = net()
        trellis.Masks(masks).apply(model)
        audit = trellis.audit(model, EXAMPLE)
        assert audit.live == audit.kept == count(masks)
        assert audit.outputs_reached == audit.outputs
        assert all(layer.live for layer in audit.layers)
    assert made.masks.kept == made.masks.budget == 304
    assert made.audit.live_fraction == 1


def test_rates_say_what_their_networks_score(made: trellis.Shrunk) -> None:
    assert made.nested is not None
    assert [rate.kept for rate in made.rates if rate.asked] == [304, 121, 30]
    for rate in made.rates:
        model = net(1)
        made.nested.apply(model, keep=rate.kept)
        assert rate.score == accuracy(model)
    assert made.score == made.rates[0].score


def accuracy(model: nn.Module) -> float:
    model.eval()
    right = [(model(x).argmax(1) == y).double() for x, y in batches()]
    return float(torch.cat(right).mean())


@pytest.mark.parametrize("seed", range(4))
def test_any_rate_comes_out_of_a_folder(made: trellis.Shrunk, seed: int, tmp_path: Path) -> None:
    assert made.nested is not None
    trellis.save(made.model, tmp_path / "m", nested=made.nested)
    dice = random.Random(seed)
    for keep in sorted(dice.sample(range(30, 305), 6), reverse=True):
        model = trellis.load(tmp_path / "m", into=net(2), keep=keep)
        audit = trellis.audit(model, EXAMPLE)
        assert audit.live == audit.kept == keep
        assert audit.outputs_reached == audit.outputs
        kept = dict(trellis.masks_of(model))
        larger = next(each for each in reversed(made.nested.masks) if count(each) >= keep)
        smaller = next(each for each in made.nested.masks if count(each) <= keep)
        assert all(bool((larger[n] | ~mask).all()) for n, mask in kept.items())
        assert all(bool((mask | ~smaller[n]).all()) for n, mask in kept.items())
    again = trellis.load(tmp_path / "m", into=net(3))
    made.nested.apply(again, sparsity=0.77)
    same(again, trellis.load(tmp_path / "m", into=net(4), keep=139))


def test_without_a_rate_a_folder_gives_the_largest(made: trellis.Shrunk, tmp_path: Path) -> None:
    trellis.save(made.model, tmp_path / "m", nested=made.nested)
    model = trellis.load(tmp_path / "m", into=net(2))
    same(model, made.model)


def test_rates_go_down_and_up_again(made: trellis.Shrunk) -> None:
    assert made.nested is not None
    model, other = net(1), net(2)
    made.nested.apply(model, sparsity=0.95)
    model.state_dict()  # sets what is masked to 0
    made.nested.apply(model, sparsity=0.5)
    made.nested.apply(other, sparsity=0.5)
    same(model, other)


@pytest.mark.parametrize("rate", [{"sparsity": 0.49}, {"sparsity": 0.96}, {"keep": 305}])
def test_a_rate_out_of_range_is_one_error(
    made: trellis.Shrunk, rate: dict[str, Any], tmp_path: Path
) -> None:
    trellis.save(made.model, tmp_path / "m", nested=made.nested)
    model = net(1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(TrellisError, match=r"expected a sparsity from 0\.5 to 0\.95"):
        trellis.load(tmp_path / "m", into=model, **rate)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_folder_with_one_network_has_no_other_rate(tmp_path: Path) -> None:
    found = shrunk(net())
    trellis.save(found.model, tmp_path / "m")
    with pytest.raises(TrellisError, match="holds one network"):
        trellis.load(tmp_path / "m", into=net(), sparsity=0.9)
    assert trellis.masks_of(trellis.load(tmp_path / "m", into=net(1))) == found.masks


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sparsity": (0.9, 0.9)}, "expected different rates"),
        ({"sparsity": ()}, "at least one rate"),
        ({"keep": (300, 1)}, "too small to reach"),
        ({"sparsity": (0.5, 0.9), "consistent": False}, "consistent"),
        ({"sparsity": (0.5, 0.9), "regrow": 0.1}, "regrow"),
        ({"sparsity": (0.5, 0.9), "steps": 5}, "too few for 2 rates"),
    ],
)
def test_bad_rates_change_nothing(options: dict[str, Any], words: str) -> None:
    model, untouched = net(), net()
    with pytest.raises(TrellisError, match=words):
        shrunk(model, **options)
    same(model, untouched)


def test_a_single_rate_in_a_list_is_one_rate() -> None:
    one, other = net(), net()
    assert shrunk(one, sparsity=[0.9]).nested is None
    shrunk(other, sparsity=0.9)
    same(one, other)


class Attending(nn.Module):
    """Keyword inputs, layer norms and an attention."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.norm = nn.Linear(8, 12), nn.LayerNorm(12)
        self.query, self.value, self.head = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 2)

    def forward(self, x: torch.Tensor, *, gain: torch.Tensor | None = None) -> torch.Tensor:
        x = self.norm(self.read(x.unflatten(1, (1, 8)).expand(-1, 3, 8)))
        x = (self.query(x) @ x.transpose(1, 2)).softmax(2) @ self.value(x)
        found: torch.Tensor = self.head(x.mean(1).relu())
        return found


def test_other_architectures_and_ignored_parameters(tmp_path: Path) -> None:
    torch.manual_seed(0)
    found = shrunk(Attending(), keep=(200, 100), ignore="head.*", steps=40, out=tmp_path)
    assert found.nested is not None and found.nested.total == 8 * 12 + 2 * 12 * 12
    for keep in (200, 170, 111, 100):
        model = trellis.load(tmp_path / "model", into=Attending(), keep=keep)
        audit = trellis.audit(model, EXAMPLE)
        counted = [layer for layer in audit.layers if layer.name != "head.weight"]
        assert sum(layer.kept for layer in counted) == sum(layer.live for layer in counted) == keep


@dataclass
class Output:
    """What models of Hugging Face return: an object with a loss and logits."""

    loss: torch.Tensor | None
    logits: torch.Tensor


class Own(nn.Module):
    """Returns its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Net()

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        logits = self.inner(x)
        if labels is None:
            return logits
        return Output(nn.functional.cross_entropy(logits, labels), logits)


def test_a_model_with_a_loss_of_its_own() -> None:
    torch.manual_seed(0)
    given = [{"x": x, "labels": y} for x, y in batches()]
    found = shrunk(Own(), given, keep=(200, 40), steps=30)
    assert found.nested is not None and found.nested.asked == (200, 40)
    assert found.audit.live_fraction == 1


def test_a_damaged_file_is_an_error(made: trellis.Shrunk) -> None:
    nested = made.nested
    assert nested is not None
    state = {**Net().state_dict(), **nested.weights}
    head, tensors = nested.head(), nested.tensors()
    again = trellis.Nested.read(head, tensors, state, nested.masks[0])
    assert again.budgets == nested.budgets
    level = next(name for name in tensors if "levels" in name)
    other = next(name for name in tensors if "others" in name)
    for bad in (
        {level: tensors[level][:-1]},
        {level: tensors[level].float()},
        {level: torch.zeros_like(tensors[level])},
        {other: tensors[other][:-1]},
        {other: tensors[other] * torch.nan},
    ):
        with pytest.raises(TrellisError):
            trellis.Nested.read(head, tensors | bad, state, nested.masks[0])
    for wrong in ({"asked": [30, 304]}, {"asked": [700, 30]}, {"total": 5}, {"budgets": [3]}):
        with pytest.raises(TrellisError):
            trellis.Nested.read(head | wrong, tensors, state, nested.masks[0])
