"""What tables hold: nothing dead, shared weights once, constants as biases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import trellis
from tests.deploy.networks import gcn, paper
from tests.zoo import ZOO
from trellis.deploy.format.read import check
from trellis.deploy.tables import Step, interpreted, tables
from trellis.deploy.tables import memory_layout as slabs
from trellis.errors import TrellisError


def test_by_hand() -> None:
    """Two inputs, of which the second is read by nobody who is read: one unit, one weight."""
    lower, upper = nn.Linear(2, 2), nn.Linear(2, 1)
    with torch.no_grad():
        lower.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 0.0]]))
        lower.bias.copy_(torch.tensor([1.0, 2.0]))
        upper.weight.copy_(torch.tensor([[5.0, 7.0]]))
        upper.bias.copy_(torch.tensor([0.5]))
    found = tables(nn.Sequential(lower, nn.Sigmoid(), upper), torch.zeros(1, 2))
    first, last = found.steps
    assert (first.weights.tolist(), first.bias.tolist(), first.act.name) == (
        [3.0],
        [1.0],
        "sigmoid",
    )
    constant = 7.0 / (1.0 + np.exp(-2.0))  # the second unit, which no input reaches
    assert last.weights.tolist() == [5.0]
    np.testing.assert_allclose(last.bias, [0.5 + constant], rtol=1e-6)


def test_constant_plane_behind_padding() -> None:
    """A constant channel counts fewer times at the border: biases differ there, weights do not."""
    first = nn.Conv2d(1, 2, 1)
    model = nn.Sequential(first, nn.Sigmoid(), nn.Conv2d(2, 1, 3, padding=1))
    with torch.no_grad():
        first.weight[1] = 0
    found = tables(model, torch.zeros(1, 1, 5, 5), loops=False)
    assert len(set(found.steps[-1].bias.tolist())) == 9  # corners, edges, inside
    x = torch.randn(3, 1, 5, 5)
    wanted = model(x).detach().reshape(3, -1).numpy()
    for form in (found, tables(model, torch.zeros(1, 1, 5, 5))):
        np.testing.assert_allclose(interpreted(form, x.numpy()), wanted, atol=1e-6)


@pytest.mark.parametrize("sparsity", [0.9, 0.99, 0.999])
def test_shared_weights_lie_once(sparsity: float) -> None:
    model, x = paper(sparsity)
    found = tables(model, x)
    kept = trellis.masks_of(model)
    assert kept is not None
    assert found.weights == kept.kept
    assert found.uses > found.weights


def test_slabs_need_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = gcn(0.5, nodes=11, channels=30, heads=8, filters=40)
    whole = tables(model, x)
    monkeypatch.setattr(slabs, "SLAB", 256)
    cut = tables(model, x)
    assert len(cut.steps) > len(whole.steps) and cut.size < whole.size / 2
    data = torch.randn(5, 11, 30).numpy()
    np.testing.assert_allclose(interpreted(cut, data), interpreted(whole, data), atol=1e-4)


def test_slabs_of_what_is_returned_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units that leave the network on the way, some of which nobody reads."""

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(6, 6, 3, padding=1, groups=6)
            self.second = nn.Conv2d(6, 6, 3, padding=1, groups=6)
            self.last = nn.Linear(6 * 25, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            a = self.first(x).relu()
            b = self.second(a).relu()
            return self.last(b.flatten(1)), a, b

    model = Watched()
    with torch.no_grad():
        model.second.weight[2:] = 0
        model.first.weight[5] = 0
    monkeypatch.setattr(slabs, "SLAB", 8)
    found = tables(model, torch.zeros(1, 6, 5, 5))
    assert len(found.steps) > 3
    check(found)
    x = torch.randn(3, 6, 5, 5)
    wanted = np.concatenate([y.detach().reshape(3, -1).numpy() for y in model(x)], axis=1)
    np.testing.assert_allclose(interpreted(found, x.numpy()), wanted, atol=1e-5)


@pytest.mark.parametrize("name", ZOO)
def test_zoo_equal_or_told(name: str) -> None:
    model, inputs = ZOO[name]()
    x = [torch.randn_like(value) if value.is_floating_point() else value for value in inputs]
    try:
        found = tables(model, inputs)
    except TrellisError as error:
        assert "trellis export onnx" in str(error)
        return
    check(found)
    with torch.no_grad():
        leaves = torch.utils._pytree.tree_leaves(model(*x))
    wanted = np.concatenate([y.reshape(-1).numpy() for y in leaves if isinstance(y, torch.Tensor)])
    flat = np.concatenate([value.reshape(1, -1).numpy() for value in x], axis=1)
    assert np.abs(interpreted(found, flat)[0] - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_model_without_rule_is_told() -> None:
    class Sorts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sort().values

    with pytest.raises(TrellisError, match=r"aten\.sort.*trellis export onnx"):
        tables(Sorts(), torch.zeros(1, 4))


def test_weights_that_are_not_finite_are_told() -> None:
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight[0, 0] = float("nan")
    with pytest.raises(TrellisError, match="not finite"):
        tables(layer, torch.zeros(1, 2))


class Mean(nn.Module):
    def __init__(self, dims: tuple[int, ...], keepdim: bool) -> None:
        super().__init__()
        self.dims, self.keepdim = dims, keepdim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu().mean(self.dims, self.keepdim)


@pytest.mark.parametrize(
    "pool, most",
    [
        (nn.AdaptiveAvgPool2d(1), 13 + 17),
        (nn.AdaptiveAvgPool2d((1, 3)), 13 + 3 * 17),
        (nn.AdaptiveAvgPool2d((None, 1)), 17),
        (Mean((2, 3), False), 13 + 17),
        (Mean((-1, 1, 2), True), 5 + 13 + 17),
    ],
)
def test_a_mean_over_a_picture_is_a_mean_of_means(pool: nn.Module, most: int) -> None:
    """Otherwise every place would take a term, and where channels are cut apart, in each."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 13, 17)
    found = tables(nn.Sequential(nn.ReLU(), pool), x[:1], loops=False)
    steps = [step for step in found.steps if isinstance(step, Step) and step.act.name == "none"]
    assert sum(len(step.terms) for step in steps) <= 2 * most
    wanted = pool(x.relu()).reshape(2, -1).numpy()
    np.testing.assert_allclose(interpreted(found, x.numpy()), wanted, atol=1e-6)


class Beside(nn.Module):
    """A convolution's planes, and others added to them: ``kind`` says which."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.middle, self.last = (
            nn.Conv2d(1 if i == 0 else 8, 8, 3, padding=1) for i in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        y = x if self.kind == "itself" else torch.relu(self.middle(x))
        made = torch.relu(self.last(y) + x)
        return made * x if self.kind == "again" else made


@pytest.mark.parametrize(("kind", "signals"), [("others", 2), ("itself", 2), ("again", 3)])
def test_a_sum_lies_on_what_it_adds(kind: str, signals: int) -> None:
    """Unless its convolution reads that as well, or something else does so later."""
    torch.manual_seed(0)
    model = Beside(kind)
    found = tables(model, torch.zeros(1, 1, 16, 16))
    check(found)
    assert 8 * 16 * 16 * signals < found.size - 256 < 8 * 16 * 16 * (signals + 0.6)
    x = torch.randn(4, 1, 16, 16)
    wanted = model(x).detach().numpy().reshape(4, -1)
    np.testing.assert_allclose(interpreted(found, x.numpy()), wanted, atol=1e-5)
