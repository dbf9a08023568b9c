"""Fine-tuning for int8 arithmetic: what is rounded, what is not, and what the network becomes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

import trellis
from tests.deploy.tools import tool
from trellis.deploy.format import read_bytes
from trellis.deploy.tables import interpreted
from trellis.training.shrink.fake_quant import (
    RoundsLayers,
    fake_quantized,
    round_weights,
    rounded_tensor,
    rounded_weight,
)

from .tasks import batches, net, same, shrunk
from .test_nested import Attending


def nearest(values: Tensor, levels: NDArray[np.floating]) -> Tensor:
    """The level nearest to each value, by looking at all of them."""
    x = values.detach().double().numpy()
    made: NDArray[np.floating] = levels[np.abs(x[..., None] - levels).argmin(-1)]
    return torch.from_numpy(made).to(values.dtype)


def by_tensor(x: Tensor) -> Tensor:
    """256 levels from the lowest number to the highest, moved so that one of them is 0."""
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    step = (high - low) / 255
    return nearest(x, (np.arange(256) - round(-low / step)) * step)


def by_row(row: Tensor) -> Tensor:
    largest = float(row.abs().max())
    return nearest(row, np.arange(-127, 128) * (largest / 127)) if largest else row


def by_channel(weight: Tensor) -> Tensor:
    return torch.stack([by_row(row) for row in weight])


def by_channel_transposed(weight: Tensor, groups: int) -> Tensor:
    """Output channel (group, o) of a transposed convolution reads weight[inputs of group, o]."""
    made = weight.clone()
    inputs = len(weight) // groups
    for group in range(groups):
        for out in range(weight.shape[1]):
            own = slice(group * inputs, (group + 1) * inputs), out
            made[own] = by_row(weight[own])
    return made


def drawn(shape: tuple[int, ...], seed: int) -> Tensor:
    """Numbers of any sign and size, some of them 0."""
    dice = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=dice) + 3 * torch.randn((), generator=dice)
    return torch.where(torch.rand(shape, generator=dice) < 0.2, 0.0, x)


CALLS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "linear": (F.linear, (7, 5), (4, 5), {}),
    "linear of one output": (F.linear, (7, 5), (5,), {}),
    "conv1d": (F.conv1d, (2, 4, 9), (6, 2, 3), {"groups": 2}),
    "conv2d": (F.conv2d, (2, 3, 6, 6), (5, 3, 3, 3), {"padding": 1}),
    "depthwise": (F.conv2d, (2, 6, 5, 5), (6, 1, 3, 3), {"groups": 6, "stride": 2}),
    "conv3d": (F.conv3d, (1, 2, 4, 4, 4), (3, 2, 2, 2, 2), {}),
    "transposed": (F.conv_transpose2d, (2, 3, 4, 4), (3, 5, 2, 2), {"stride": 2}),
    "transposed, groups": (F.conv_transpose1d, (2, 6, 4), (6, 2, 3), {"groups": 3}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("seed", range(3))
def test_layers_round_to_the_nearest_levels(name: str, seed: int) -> None:
    func, shape, weights, options = CALLS[name]
    x, weight = drawn(shape, seed), drawn(weights, seed + 100)
    groups = options.get("groups", 1)
    if weight.ndim == 1:
        rounded = by_row(weight)
    elif func in (F.conv_transpose1d, F.conv_transpose2d):
        rounded = by_channel_transposed(weight, groups)
    else:
        rounded = by_channel(weight)
    right = func(by_tensor(x), rounded, **options)
    with RoundsLayers():
        found = func(x, weight, **options)
        named = func(input=x, weight=weight, **options)
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)
    assert torch.equal(named, found)
    assert torch.equal(rounded == 0, rounded_weight(weight) == 0) or "transposed" in name


def test_positional_groups_of_a_transposed_convolution() -> None:
    x, weight = drawn((2, 6, 4), 1), drawn((6, 2, 3), 2)
    with RoundsLayers():
        named = F.conv_transpose1d(x, weight, groups=3)
        placed = F.conv_transpose1d(x, weight, None, 1, 0, 0, 3)
    assert torch.equal(named, placed)


@pytest.mark.parametrize("seed", range(20))
def test_zero_stays_zero_and_the_gradient_passes(seed: int) -> None:
    for made, given in (
        (rounded_tensor, drawn((6, 11), seed)),
        (rounded_weight, drawn((6, 11), seed)),
        (rounded_tensor, drawn((6, 11), seed).abs() + 5),
        (rounded_weight, torch.cat([drawn((3, 11), seed), torch.zeros(2, 11)])),
    ):
        x = given.clone().requires_grad_()
        found = made(x)
        assert not bool(found[given == 0].any())
        slope = drawn(tuple(found.shape), seed + 1)
        found.backward(slope)
        assert x.grad is not None and torch.equal(x.grad, slope)


def test_half_precision_has_ranges_in_float32() -> None:
    x = drawn((64, 9), 4).bfloat16()
    assert torch.equal(rounded_tensor(x), rounded_tensor(x.float()).bfloat16())
    assert torch.equal(rounded_weight(x), rounded_weight(x.float()).bfloat16())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(bad: float) -> None:
    x = torch.tensor([[1.0, bad], [2.0, 3.0]])
    assert bool(rounded_tensor(x).isnan().any()) and bool(rounded_weight(x)[0].isnan().any())


def test_empty_and_whole_numbers_pass() -> None:
    assert rounded_tensor(torch.zeros(0, 3)).shape == (0, 3)
    whole = torch.arange(1000)
    assert rounded_tensor(whole) is whole
    with RoundsLayers():
        assert F.linear(torch.zeros(0, 3), torch.ones(2, 3)).shape == (0, 2)


def test_outputs_are_rounded_and_recurrent_layers_are_not() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 5)), torch.randn(200, 8)
    with fake_quantized(model):
        made = model(x)
    assert len(made.unique()) <= 256 < len(model(x).unique())
    lstm = nn.LSTM(8, 4, batch_first=True)
    with RoundsLayers():
        found = lstm(x[None])[0]
    assert torch.equal(found, lstm(x[None])[0])


def test_activations_by_table_round_what_they_read() -> None:
    x = drawn((30, 30), 5)
    calls: list[Callable[[Tensor], Tensor]] = [
        torch.tanh, Tensor.sigmoid, F.silu, F.gelu, nn.Hardswish(), nn.LeakyReLU()
    ]  # fmt: skip
    for call in calls:
        with RoundsLayers():
            found = call(x)
        assert torch.equal(found, call(rounded_tensor(x)))
    with RoundsLayers():
        assert torch.equal(F.relu(x), x.clamp(min=0))


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if value.ndim > 1}


def off_grid(model: nn.Module) -> int:
    """How many weights rounding moves, beside those that it makes 0."""
    moved = 0
    for weight in weights_of(model).values():
        made = rounded_weight(weight)
        moved += int(((made - weight).abs() > 1e-5 * weight.abs())[made != 0].sum())
    return moved


def test_the_last_phase_rounds_and_leaves_rounded_weights() -> None:
    plain, model = net(), net()
    before = shrunk(plain, sparsity=0.5, validation=batches())
    found = shrunk(model, sparsity=0.5, validation=batches(), quantize="int8")
    assert [row["phase"] for row in found.history][-1] == "tune in int8"
    tuned = [row["phase"].startswith("tune") for row in before.history]
    first = tuned.index(True)
    assert found.history[:first] == before.history[:first]  # nothing else changes
    assert found.history[first]["loss"] != before.history[first]["loss"]
    assert off_grid(model) == 0 < off_grid(plain)
    model.eval()
    right = [(model(x).argmax(1) == y).double() for x, y in batches()]
    assert found.score == float(torch.cat(right).mean())


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9])
def test_what_is_left_stays_live(sparsity: float) -> None:
    model = net()
    found = shrunk(model, sparsity=sparsity, quantize="int8")
    assert found.audit.live == found.audit.kept == found.masks.kept
    found.masks.bake(model)
    audit = trellis.audit(model, torch.zeros(1, 8))
    assert audit.kept == audit.live == found.masks.kept


def test_no_kept_weight_becomes_zero_and_no_pruned_one_comes_back() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4, bias=False))
    masks = trellis.prune(model, torch.zeros(1, 8), sparsity=0.5)
    with torch.no_grad():
        layers: list[Any] = [model[0], model[2]]
        for layer in layers:
            layer.parametrizations.weight.original[:, ::2] *= 1e-4
    before = weights_of(model)
    round_weights(model, lambda: model(torch.randn(3, 8)))
    for name, weight in weights_of(model).items():
        made = rounded_weight(before[name])
        assert torch.equal(weight != 0, masks[name])
        assert bool((masks[name] & (made == 0)).any())  # the case is there
        assert torch.equal(weight, torch.where(made == 0, before[name], made))


def test_nested_networks_and_searches_end_in_int8() -> None:
    found = shrunk(net(), keep=(200, 60), steps=40, quantize="int8")
    assert found.history[-1]["phase"] == "tune together in int8"
    assert found.audit.live_fraction == 1
    found = shrunk(net(), at_least=0.4, steps=20, validation=batches(), quantize="int8")
    assert found.history[-1]["phase"] == "tune in int8" and off_grid(found.model) == 0


def test_compiled_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a backend that runs the graph as it is."""
    usual = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: usual(model, backend="eager"))
    one, other = net(), net()
    assert (
        shrunk(one, quantize="int8").history == shrunk(other, quantize="int8", compile=True).history
    )
    same(one, other)


def test_other_precisions_and_architectures() -> None:
    assert shrunk(net(), quantize="int8", precision="bf16").audit.live_fraction == 1
    torch.manual_seed(0)
    assert shrunk(Attending(), keep=200, quantize="int8").audit.live_fraction == 1


def test_computed_weights_stay_computed() -> None:
    torch.manual_seed(0)
    first = nn.utils.parametrizations.weight_norm(nn.Linear(8, 16))
    model = nn.Sequential(first, nn.ReLU())
    model.append(nn.Linear(16, 2))
    shrunk(model, ignore="0.*", keep=20, quantize="int8")
    assert off_grid(model[2]) == 0 < off_grid(nn.ParameterList([first.weight]))


def test_a_distilled_network_learns_from_a_teacher_in_floats() -> None:
    found = shrunk(net(), keep=5, cover_outputs=False, steps=40, distill=0.5, quantize="int8")
    phases = list(dict.fromkeys(row["phase"] for row in found.history))
    assert [name for name in phases if "int8" in name] == ["tune in int8"] == phases[-1:]


def test_exported_it_computes_the_same_everywhere(tmp_path: Path) -> None:
    tool("gcc", "clang", "cc")
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, groups=8), nn.SiLU(), nn.Flatten(), nn.Linear(72, 2),
    )  # fmt: skip
    images = [(torch.randn(16, 3, 8, 8), torch.arange(16) % 2) for _ in range(3)]
    shrunk(model, images, sparsity=0.5, quantize="int8")
    model.eval()
    x = torch.cat([each for each, _ in images])
    written = trellis.export_c(model, x[:1], tmp_path, arithmetic="int8", calibration=x)
    found = read_bytes((tmp_path / "model.trellis").read_bytes())
    made = trellis.Runtime(tmp_path / "model.trellis").predict(x.numpy())
    np.testing.assert_array_equal(made, interpreted(found, x.numpy()).reshape(made.shape))
    assert written.loss is not None and written.loss.typical < 0.06
