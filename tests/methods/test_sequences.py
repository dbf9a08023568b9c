"""Walks over random sequences of layers: a consistent network, or an error that says why not."""

import copy
import random
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import trellis
from trellis.errors import TrellisError
from trellis.methods.layers import layered
from trellis.paths.liveness import liveness

from .test_layers import live, numbers

ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.Identity, nn.Dropout)
MIXING = 0.2  # how often a layer mixes its units: walks refuse it in front of others


def flat(rng: random.Random, units: int) -> nn.Module:
    """One layer that reads (batch, units)."""
    part = rng.choice([d for d in range(1, units + 1) if units % d == 0])
    if rng.random() < MIXING:
        return rng.choice([
            nn.LayerNorm(units, elementwise_affine=rng.random() < 0.5),
            nn.GroupNorm(part, units),
            nn.Softmax(-1),
        ])  # fmt: skip
    return rng.choice([
        nn.Linear(units, rng.randint(1, 6), bias=rng.random() < 0.5),
        nn.Linear(units, rng.randint(1, 6)),
        nn.BatchNorm1d(units),
        nn.Unflatten(1, (part, units // part)),
        nn.Unflatten(1, (part, units // part, 1)),
        rng.choice(ACTIVATIONS)(),
    ])  # fmt: skip


def spatial(rng: random.Random, shape: torch.Size) -> nn.Module:
    """One layer that reads (batch, channels, length) or (batch, channels, height, width)."""
    channels, *size = shape
    d = len(size)
    part = rng.choice([n for n in range(1, channels + 1) if channels % n == 0])
    kernel, stride, padding = rng.randint(1, 3), rng.randint(1, 2), rng.randint(0, 1)
    kinds = {
        1: (nn.Conv1d, nn.ConvTranspose1d, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d,
            nn.AdaptiveMaxPool1d, nn.BatchNorm1d, nn.InstanceNorm1d, nn.ConstantPad1d),
        2: (nn.Conv2d, nn.ConvTranspose2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d,
            nn.AdaptiveMaxPool2d, nn.BatchNorm2d, nn.InstanceNorm2d, nn.ConstantPad2d),
    }  # fmt: skip
    conv, back, most, mean, some, top, norm, single, pad = kinds[d]
    wide = rng.choice([part, 2 * part])
    if rng.random() < MIXING:
        return rng.choice([
            single(channels, affine=rng.random() < 0.5),
            nn.GroupNorm(part, channels),
            nn.LayerNorm([channels, *size]),
            nn.LayerNorm(size[-1]),
            nn.Softmax(rng.randint(1, d + 1)),
        ])  # fmt: skip
    return rng.choice([
        conv(channels, wide, kernel, stride, padding, groups=part, bias=rng.random() < 0.5),
        conv(channels, rng.randint(1, 4), kernel, 1, padding),
        back(channels, rng.randint(1, 3), kernel, stride),
        most(kernel, stride, padding if kernel > 1 else 0),
        mean(kernel, stride),
        rng.choice([some, top])(rng.randint(1, 2)),
        norm(channels),
        pad(1, 0.0),
        nn.Linear(size[-1], rng.randint(1, 3)),
        nn.Upsample(scale_factor=2),
        nn.Flatten(),
        nn.Flatten(),
        rng.choice(ACTIVATIONS)(),
    ])  # fmt: skip


def sequence(seed: int) -> tuple[nn.Sequential, torch.Tensor]:
    """A few layers that fit one after another, and an input for them."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    shape = rng.choice([(5,), (6,), (2, 5), (1, 4, 4), (2, 3, 5)])
    x = torch.randn(1, *shape)
    layers: list[nn.Module] = []
    value = x
    while len(layers) < 8 and (len(layers) < 2 or rng.random() < 0.85):
        width = value.shape[1]
        layer = flat(rng, width) if value.ndim == 2 else spatial(rng, value.shape[1:])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                after = layer.eval()(value)
        except (RuntimeError, ValueError):  # a window that is larger than the signal
            continue
        if 0 < after[0].numel() <= 64:
            layers.append(layer)
            value = after.detach()
    return nn.Sequential(*layers), x


def walk(seed: int) -> str:
    """Prune one random sequence by walks. What came of it."""
    model, x = sequence(seed)
    rng = random.Random(~seed)
    method = rng.choice(["chains", "phew"])
    options: dict[str, Any] = {}
    if method == "chains":
        options = {"stochastic": rng.random() < 0.3, "inverse_alpha": rng.choice([1.0, 4.0])}
        options["surrogate"] = rng.choice(["local", "global"])
    net = trellis.trace(model, x)
    if not net.connections:
        return "no weights"
    for sparsity in (0.0, 0.3, 0.6, 0.9):
        pruned = copy.deepcopy(model)
        try:
            masks = trellis.prune(pruned, x, sparsity=sparsity, method=method, **options)
        except TrellisError as error:
            if "walks need one layer after another" in str(error):
                return "refused"
            continue  # too small a budget, or an output that nothing reaches
        audit = trellis.audit(pruned, x)
        assert audit.live == audit.kept == masks.kept <= masks.budget
    try:
        found = layered(net)
    except TrellisError:  # no budget needed a walk
        return "refused"
    kept = {n: torch.rand(shape) < 0.5 for n, shape in net.connections.items()}
    assert live(found, numbers(found, kept)) == numbers(found, liveness(net, kept).live)
    return "walked"


@pytest.mark.parametrize("seed", range(40))
def test_random_sequences_are_pruned_or_refused(seed: int) -> None:
    walk(seed)


@pytest.mark.parametrize("method", ["chains", "phew"])
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 3), nn.LayerNorm(3), nn.LayerNorm(3)), (4,)),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(3, 1), nn.GroupNorm(2, 4)), (1, 7, 7)),
    ],
)
def test_norms_of_what_is_mixed_already(
    method: str, model: nn.Sequential, shape: tuple[int, ...]
) -> None:
    x = torch.zeros(1, *shape)
    model = copy.deepcopy(model)
    masks = trellis.prune(model, x, sparsity=0.5, method=method)
    assert trellis.audit(model, x).live == masks.kept > 0
