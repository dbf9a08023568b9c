"""The GPU kernels against the plain products; needs a GPU with room for their tiles."""

from __future__ import annotations

import pytest
import torch

from trellis.skeleton import GCN
from trellis.skeleton.model.gpu import Fused, power, two_parts, usable
from trellis.training import Training, forward_of, recipe_named, stack

SHAPES = [  # nodes, channels, classes, heads, filters, batch
    (21, 96, 45, 16, 128, 600),
    (20, 96, 10, 3, 64, 61),
    (5, 24, 7, 1, 16, 130),
    (30, 128, 64, 5, 32, 17),
    (4, 40, 2, 2, 128, 65),
]
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


@on_a_gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activation", ["relu", "abs"])
def test_kernels_equal_plain_products_to_bfloat16(shape: tuple[int, ...], activation: str) -> None:
    nodes, channels, classes, heads, filters, batch = shape
    torch.manual_seed(0)
    model = GCN(nodes, channels, classes, heads, filters, activation=activation)
    exact = {n: w.double().cuda().requires_grad_() for n, w in stack([model, model]).items()}
    single = {n: w.detach().float().requires_grad_() for n, w in exact.items()}
    x = torch.randn(2, batch, nodes, channels, device="cuda")
    pull = torch.randn(2, batch, classes, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        if not usable(single["blocks.0.attention"], single["blocks.0.convolution"], classes):
            pytest.skip("this GPU has no room for the tiles")
        found = Fused.apply(*single.values(), x, activation == "abs")
    wanted = forward_of(model)(exact, x.double())
    pairs = [(found, wanted)]
    pairs += zip(
        torch.autograd.grad((found * pull).sum(), list(single.values())),
        torch.autograd.grad((wanted * pull).sum(), list(exact.values())),
        strict=True,
    )
    # What weighs most is a unit that is on the other side of zero after rounding: its gradient then
    # comes or goes (ReLU), or turns round, which is twice as much.
    most = 0.12 if activation == "abs" else 0.06
    for got, right in pairs:
        assert ((got - right).norm() / right.norm()).item() < most


@on_a_gpu
def test_captured_training_is_the_same_twice_and_learns() -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 21, 96, device="cuda")
    y = torch.arange(60, device="cuda") % 5
    runs = []
    for _ in range(2):
        torch.manual_seed(1)
        weights = {n: w.cuda() for n, w in stack([GCN(classes=5)]).items()}
        recipe = recipe_named("default", epochs=30)
        training = Training(
            forward_of(GCN(classes=5)), weights, x, y, recipe, seeds=[0], precision="bf16"
        )
        while not training.done:
            training.epoch()
        runs.append(weights)
        assert training.hits.item() > 0.9
    for name, weight in runs[0].items():
        assert torch.equal(weight, runs[1][name])


@pytest.mark.parametrize("channels", [1, 8, 16, 24, 64, 70, 96, 128])
def test_two_parts_hold_all_channels_with_less_waste(channels: int) -> None:
    parts = two_parts(channels)
    assert parts["C1"] + parts["C2"] >= channels
    assert parts["C1"] + parts["C2"] <= power(channels) or channels > 16
    assert all(part & (part - 1) == 0 for part in parts.values())
