"""Float32 as pairs of 16-bit halves: as near to float64 as plain float32 products are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trellis.skeleton import GCN
from trellis.skeleton.model import gcn as stacked
from trellis.skeleton.model import gpu as fast
from trellis.skeleton.model.gpu import Halved, scale_below
from trellis.training import Training, forward_of, recipe_named, stack

KERNELS = ("trellis.skeleton.model.triton_kernels", "trellis.skeleton.model.triton_kernels")
SMALL = [  # nodes, channels, classes, heads, filters, batch
    (5, 24, 7, 1, 16, 70),
    (3, 96, 10, 2, 16, 17),
    (17, 8, 2, 1, 32, 5),
    (2, 128, 45, 1, 128, 20),
]
LARGE = [
    (21, 96, 45, 16, 128, 600),
    (20, 96, 10, 3, 64, 61),
    (30, 128, 64, 5, 32, 17),
    (4, 128, 2, 2, 128, 65),
]
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
Weights = dict[str, Tensor]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels that Triton runs on the CPU, one operation after another."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for name in KERNELS:  # whether a kernel is interpreted is settled when it is defined
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in KERNELS:
        sys.modules.pop(name, None)


by_triton = pytest.mark.skipif(
    find_spec("triton") is None or torch.cuda.is_available(),
    reason="Triton is not installed, or there is a GPU: one process cannot do both",
)


def networks(shape: tuple[int, ...], count: int = 2) -> tuple[Weights, Tensor, Tensor]:
    nodes, channels, classes, heads, filters, batch = shape
    torch.manual_seed(0)
    models = [GCN(nodes, channels, classes, heads, filters) for _ in range(count)]
    x = torch.randn(count, batch, nodes, channels)
    return stack(models), x, torch.randn(count, batch, classes)


def results(
    forward: Callable[[Weights, Tensor], Tensor], weights: Weights, x: Tensor, pull: Tensor
) -> list[Tensor]:
    """Logits, and the gradients of their sum weighted by ``pull``."""
    leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
    logits = forward(leaves, x)
    gradients = torch.autograd.grad((logits * pull).sum(), list(leaves.values()))
    return [logits.detach(), *gradients]


def by_halves(pairs: bool, folds: bool = False) -> Callable[[Weights, Tensor], Tensor]:
    return lambda weights, x: Halved.apply(*weights.values(), x, pairs, folds)


def plain(weights: Weights, x: Tensor, activation: str = "relu") -> Tensor:
    signal = stacked.stacked_block(
        weights["blocks.0.attention"], weights["blocks.0.convolution"], None, "concat",
        activation, x,
    )  # fmt: skip
    return stacked.stacked_dense(weights["dense.weight"], None, signal)


def typical(found: list[Tensor], exact: list[Tensor]) -> list[float]:
    """Median of the deviation relative to the value's size: a ReLU that flips moves few entries."""
    return [
        ((a - b).abs().median() / (b.norm() / b.numel() ** 0.5)).item()
        for a, b in zip(found, exact, strict=True)
    ]


def far_from_zero(weights: Weights, x: Tensor) -> tuple[Weights, Tensor]:
    """Networks whose hidden units are clearly on, or clearly off (every fourth filter).

    In few bits, a unit near zero may be on where exactly it is off: that moves a gradient by far
    more than rounding does, whatever the kernel.
    """
    signs = 1.0 - 2.0 * (torch.arange(weights["blocks.0.convolution"].shape[-1]) % 4 == 3)
    sizes = {name: weight.abs() for name, weight in weights.items() if name != "dense.weight"}
    sizes["blocks.0.convolution"] *= signs.to(x.device)
    return {**sizes, "dense.weight": weights["dense.weight"]}, x.abs()


def assert_as_near(weights: Weights, x: Tensor, pull: Tensor, pairs: bool, folds: bool) -> None:
    if not pairs:
        weights, x = far_from_zero(weights, x)
    right = partial(plain, activation="abs" if folds else "relu")
    doubled = {name: weight.double() for name, weight in weights.items()}
    exact = results(right, doubled, x.double(), pull.double())
    found = typical(results(by_halves(pairs, folds), weights, x, pull), exact)
    others = typical(results(right, weights, x, pull), exact)
    for off, other in zip(found, others, strict=True):
        assert off <= (4 * other if pairs else 2.0**-9), (found, others)


@by_triton
@pytest.mark.parametrize("shape", SMALL, ids=str)
@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("folds", [True, False])
def test_kernels_are_as_near_to_float64_as_plain_products(
    interpreted: None, shape: tuple[int, ...], pairs: bool, folds: bool
) -> None:
    assert_as_near(*networks(shape), pairs, folds)


@by_triton
def test_small_channels_are_as_near_beside_large_ones(interpreted: None) -> None:
    """Sizes from 1e-3 to 1e3; the gradient of each channel's filters by itself."""
    weights, x, pull = networks((2, 96, 10, 1, 32, 64), count=1)
    x = x * 10 ** torch.linspace(-3, 3, 96)
    doubled = {name: weight.double() for name, weight in weights.items()}
    exact, found, others = (
        list(results(forward, given_weights, given_x, pull)[2].permute(2, 0, 1, 3))
        for forward, given_weights, given_x in (
            (plain, doubled, x.double()),
            (by_halves(True), weights, x),
            (plain, weights, x),
        )
    )
    for off, other in zip(typical(found, exact), typical(others, exact), strict=True):
        assert off <= 4 * other


@by_triton
@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40])
def test_sizes_far_from_one_change_nothing(interpreted: None, scale: float) -> None:
    """Powers of two are taken out before numbers are halved, so that none is lost."""
    weights, x, pull = networks(SMALL[1], count=1)
    before = results(by_halves(True), weights, x, pull)
    after = results(by_halves(True), weights, x * scale, pull / scale)
    assert torch.equal(before[0] * scale, after[0])
    for a, b in zip(before[1:], after[1:], strict=True):  # as much larger as the pull is smaller
        assert torch.equal(a, b)


@by_triton
def test_a_network_comes_out_the_same_beside_any_other(interpreted: None) -> None:
    weights, x, pull = networks(SMALL[1])
    before = results(by_halves(True), weights, x, pull)
    for weight in weights.values():
        weight[1] *= 1e4
    after = results(by_halves(True), weights, x, pull)
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a[0], b[0]) and not torch.equal(a[1], b[1])


@by_triton
@pytest.mark.parametrize("name", ["blocks.0.attention", "blocks.0.convolution", "dense.weight"])
@pytest.mark.parametrize("folds", [True, False])
def test_a_parameter_of_zeros_gives_zeros_and_no_nan(
    interpreted: None, name: str, folds: bool
) -> None:
    weights, x, pull = networks(SMALL[1], count=1)
    weights[name].zero_()
    found = results(by_halves(True, folds), weights, x, pull)
    exact = results(partial(plain, activation="abs" if folds else "relu"), weights, x, pull)
    for a, b in zip(found, exact, strict=True):
        assert a.isfinite().all()
        assert torch.equal(a == 0, b == 0)


@on_a_gpu
@pytest.mark.parametrize("shape", LARGE, ids=str)
@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("activation", ["relu", "abs"])
def test_on_a_gpu_too(shape: tuple[int, ...], pairs: bool, activation: str) -> None:
    weights, x, pull = networks(shape)
    weights = {name: weight.cuda() for name, weight in weights.items()}
    with torch.no_grad():
        first = weights["blocks.0.attention"], weights["blocks.0.convolution"]
        if not fast.usable(*first, pull.shape[-1]):
            pytest.skip("this GPU has no room for the tiles")
        given = *first, weights["dense.weight"], x.cuda()
        assert fast.fast_logits(*given, activation) is not None
    assert_as_near(weights, x.cuda(), pull.cuda(), pairs, activation == "abs")


@on_a_gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_captured_training_is_the_same_twice_and_learns(precision: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 21, 96, device="cuda")
    y = torch.arange(60, device="cuda") % 5
    runs = []
    for _ in range(2):
        torch.manual_seed(1)
        model = GCN(classes=5)
        weights = {n: w.cuda() for n, w in stack([model]).items()}
        training = Training(
            forward_of(model), weights, x, y, recipe_named("default", epochs=30), seeds=[0],
            precision=precision,
        )  # fmt: skip
        while not training.done:
            training.epoch()
        runs.append(weights)
        assert training.hits.item() > 0.9
    for name, weight in runs[0].items():
        assert torch.equal(weight, runs[1][name])


@given(st.floats(2.0**-45, 2.0**70, width=32))
def test_a_scale_is_a_power_of_two_that_brings_its_bound_below_2_to_the_15(bound: float) -> None:
    scale = scale_below(torch.tensor([bound])).item()
    assert torch.frexp(torch.tensor(scale)).mantissa == 0.5
    assert 2.0**14 <= bound * scale < 2.0**15


@given(
    st.floats(2.0**-20, 2.0**20, width=32),
    st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=20),
)
def test_two_halves_hold_22_bits_of_all_but_the_smallest(bound: float, shares: list[float]) -> None:
    values = torch.tensor(shares) * bound
    scaled = values * scale_below(torch.tensor([bound]))
    high = scaled.half()
    low = ((scaled - high.float()) * 2**11).half()
    off = (high.double() + low.double() / 2**11 - scaled.double()).abs()
    assert (off <= torch.maximum(scaled.double().abs() * 2.0**-22, torch.tensor(2.0**-36))).all()


def test_plain_products_stand_in_where_kernels_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, x, pull = networks(SMALL[0])
    model = GCN(*SMALL[0][:5])
    wanted = results(forward_of(model), weights, x, pull)
    monkeypatch.setattr(fast, "usable", lambda *_: True)  # on a CPU, where none of them runs
    fast._RUNS.clear()
    with pytest.warns(RuntimeWarning, match="do not run on cpu"):
        found = results(forward_of(model), weights, x, pull)
    fast._RUNS.clear()
    for a, b in zip(found, wanted, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_numbers_are_left_to_plain_products(dtype: torch.dtype, monkeypatch: Any) -> None:
    monkeypatch.setattr(fast, "usable", lambda *_: True)
    weights, x, _ = networks(SMALL[0])
    attention, convolution, dense = (weight.to(dtype) for weight in weights.values())
    assert fast.fast_logits(attention, convolution, dense, x.to(dtype), "relu") is None


def test_inputs_that_want_a_gradient_are_left_to_plain_products(monkeypatch: Any) -> None:
    monkeypatch.setattr(fast, "usable", lambda *_: True)
    weights, x, _ = networks(SMALL[0])
    attention, convolution, dense = weights.values()
    assert fast.fast_logits(attention, convolution, dense, x.requires_grad_(), "relu") is None
