"""Units that no input reaches are constants, and go into biases: worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import trellis
from tests.deploy.compact.agreement import apart, outputs
from trellis import Compacted
from trellis.masks import plain_tensors


def keep(model: nn.Module, **rows: list[int]) -> None:
    """Zero all of a weight but some of its rows; names have _ for a dot."""
    for name, kept in rows.items():
        weight = model.get_parameter(name.replace("_", "."))
        gone = torch.ones(len(weight), dtype=torch.bool)
        gone[kept] = False
        with torch.no_grad():
            weight[gone] = 0


def same(model: nn.Module, example: Tensor) -> Compacted:
    model = model.double().eval()
    small = trellis.compact(model, example.double())
    x = torch.randn(3, *example.shape[1:], dtype=torch.float64)
    assert apart(outputs(model, (x,)), outputs(small, (x,))) < 1e-12
    return small


def shapes(small: Compacted) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in plain_tensors(small).items()}


def test_a_constant_unit_goes_into_the_next_bias() -> None:
    first, last = nn.Linear(2, 3), nn.Linear(3, 1)
    model = nn.Sequential(first, nn.Sigmoid(), last)
    keep(model, **{"0_weight": [0]})
    small = same(model, torch.zeros(1, 2))
    expected = last.bias + last.weight[:, 1:] @ torch.sigmoid(first.bias[1:])
    bias = small.get_parameter("2.bias")
    assert torch.allclose(bias, expected) and shapes(small)["2.weight"] == (1, 1)


def test_behind_zero_padding_a_constant_plane_becomes_a_map() -> None:
    """A 3x3 kernel over a plane of ones gives 9 inside, 6 at edges, 4 in corners."""
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.Conv2d(2, 1, 3, padding=1))
    values = ([1.0, 0.0], [0.0, 1.0], [1.0], [0.0])
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            wide = torch.tensor(value).reshape(-1, *[1] * (parameter.ndim - 1))
            parameter.copy_(wide.expand(parameter.shape))
    small = same(model, torch.zeros(1, 1, 4, 4))
    shift = small.get_parameter("2.shift")
    row, edge = [4.0, 6.0, 6.0, 4.0], [6.0, 9.0, 9.0, 6.0]
    assert shift.tolist() == [[[row, edge, edge, row]]]
    assert shapes(small)["2.weight"] == (1, 1, 3, 3)


def test_without_padding_it_stays_one_number() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3, bias=False))
    keep(model, **{"0_weight": [1]})
    nn.init.constant_(model.get_parameter("0.bias"), 0.5)
    small = same(model, torch.zeros(1, 1, 6, 6))
    assert shapes(small) == {
        "0.weight": (1, 1, 3, 3), "0.bias": (1,), "2.weight": (2, 1, 3, 3), "2.bias": (2,),
    }  # fmt: skip


def norm(kind: type[nn.Module], width: int) -> nn.Module:
    made = kind(width)
    with torch.no_grad():
        for name in ("weight", "bias", "running_mean"):
            getattr(made, name).normal_()
        made.running_var.uniform_(0.5, 2)  # type: ignore[operator]
    return made


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "layer",
    [
        lambda b: nn.Conv2d(4, 6, 3, padding=1, stride=2, bias=b),
        lambda b: nn.Conv2d(4, 6, 3, padding=1, groups=2, bias=b),
        lambda b: nn.ConvTranspose2d(4, 6, 3, padding=1, stride=2, groups=2, bias=b),
    ],
    ids=["strided", "grouped", "transposed"],
)
def test_batch_norms_are_folded(layer: Callable[[bool], nn.Module], bias: bool) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=bias), norm(nn.BatchNorm2d, 4), nn.ReLU(),
        layer(bias), norm(nn.BatchNorm2d, 6), nn.ReLU(), nn.Conv2d(6, 2, 3, padding=1),
    )  # fmt: skip
    keep(model, **{"0_weight": [0, 1], "3_weight": [0, 3]})
    small = same(model, torch.zeros(1, 3, 6, 6))
    assert not any("norm" in op.target for op in small.program.ops)
    assert not any(name.startswith(("1.", "4.")) for name, _ in small.named_parameters())


def test_a_batch_norm_that_nothing_can_take_in_is_a_scale_and_a_shift() -> None:
    """Between two nonlinear functions there is no layer to fold into."""
    model = nn.Sequential(
        nn.Linear(4, 6), nn.Tanh(), norm(nn.BatchNorm1d, 6), nn.Tanh(), nn.Linear(6, 2)
    )
    keep(model, **{"0_weight": [0, 2]})
    small = same(model, torch.zeros(1, 4))
    assert shapes(small)["2.weight"] == (2,)
    assert "2: a batch norm stays as a scale and a shift" in str(small)


class Summed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(3, 5), nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(torch.relu(self.a(x) + self.b(x)))
        return y


def test_a_sum_needs_the_width_and_says_so() -> None:
    model = Summed()
    keep(model, a_weight=[0, 1], b_weight=[1, 2])
    small = same(model, torch.zeros(1, 3))
    assert shapes(small)["a.weight"] == (3, 3)  # 0, 1 and 2 live on one side or both
    assert "a: 1 stay because a sum needs the same width on both sides" in str(small)


def test_a_layer_norm_keeps_its_units_and_says_so() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2))
    keep(model, **{"0_weight": [0, 1]})
    small = same(model, torch.zeros(1, 3))
    assert shapes(small)["0.weight"] == (5, 3)
    assert "stay because the statistics of a layer norm are taken over all of it" in str(small)


def test_an_output_that_nothing_reaches_is_a_constant_for_every_sample() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    keep(model, **{"0_weight": []})
    small = same(model, torch.zeros(1, 3))
    assert small(torch.randn(7, 3, dtype=torch.float64)).shape == (7, 2)
    assert small.report.after.connections == 0


def test_the_model_is_not_changed() -> None:
    model = nn.Sequential(nn.Linear(3, 4), norm(nn.BatchNorm1d, 4), nn.ReLU(), nn.Linear(4, 2))
    trellis.prune(model, torch.zeros(1, 3), sparsity=0.5)
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trellis.compact(model, torch.zeros(1, 3))
    assert model.training
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
