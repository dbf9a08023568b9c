"""Random CNNs of every kind that loops over planes have, pruned at random, some channels empty."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]


class Residual(nn.Module):
    """A layer beside its input, or beside a projection where sizes differ."""

    def __init__(self, inner: nn.Module, beside: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.inner, self.beside, self.act = inner, beside, act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.inner(x) + self.beside(x))


class Joined(nn.Module):
    """Two layers side by side, their channels one after another."""

    def __init__(self, one: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.other(x)], 1)


class Cut(nn.Module):
    """Padding before alone, as causal convolutions have it, or some columns left out."""

    def __init__(self, before: int, left_out: int) -> None:
        super().__init__()
        self.before, self.left_out = before, left_out

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.pad(x, (self.before, 0))
        return x[..., self.left_out :]


class Gated(nn.Module):
    """Squeeze and excitation: planes times numbers of their own."""

    def __init__(self, channels: int, pool: nn.Module, conv: nn.Module) -> None:
        super().__init__()
        self.pool, self.conv = pool, conv

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.conv(self.pool(x)))


ACTS: list[Callable[[], nn.Module]] = [
    nn.ReLU, nn.ReLU6, nn.Hardswish, nn.Sigmoid, nn.SiLU, nn.GELU, nn.Identity,
    lambda: nn.LeakyReLU(0.1),
]  # fmt: skip


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.dims = rng.choice([1, 2, 2])
        self.conv = nn.Conv1d if self.dims == 1 else nn.Conv2d
        self.norm = nn.BatchNorm1d if self.dims == 1 else nn.BatchNorm2d
        self.across = nn.ConvTranspose1d if self.dims == 1 else nn.ConvTranspose2d

    def act(self) -> nn.Module:
        return self.rng.choice(ACTS)()

    def layer(self, channels: int, size: int) -> nn.Module:
        """A layer that a plane of ``size`` is large enough for."""
        rng = self.rng
        kinds = [
            "conv", "conv", "strided", "grouped", "depthwise", "pointwise", "residual", "projected",
            "joined", "max", "average", "cut", "normed", "gated", "across",
        ]  # fmt: skip
        if size > 14:
            kinds = [kind for kind in kinds if kind != "across"]
        kind = rng.choice(kinds if size >= 6 else ["conv", "pointwise", "residual", "joined"])
        wide = rng.choice([2, 4, 6])
        if kind == "strided":
            return self.conv(channels, wide, 3, stride=rng.choice([2, 2, 3]), padding=1)
        if kind == "grouped":
            return self.conv(channels, 4, 3, padding=1, groups=2 - channels % 2)
        if kind == "depthwise":
            return self.conv(channels, channels, 3, padding=1, groups=channels)
        if kind == "pointwise":
            return self.conv(channels, wide, 1, bias=False)
        if kind == "residual":
            inner = nn.Sequential(self.conv(channels, channels, 3, padding=1), self.norm(channels))
            return Residual(inner, nn.Identity(), self.act())
        if kind == "projected":
            inner = nn.Sequential(
                self.conv(channels, wide, 3, stride=2, padding=1, bias=False), self.norm(wide),
                self.act(), self.conv(wide, wide, 3, padding=1),
            )  # fmt: skip
            return Residual(inner, self.conv(channels, wide, 1, stride=2), self.act())
        if kind == "joined":
            return Joined(
                self.conv(channels, 2, 3, padding=1), self.conv(channels, 4, 5, padding=2)
            )
        pools = (nn.MaxPool1d, nn.AvgPool1d) if self.dims == 1 else (nn.MaxPool2d, nn.AvgPool2d)
        if kind == "max":
            return pools[0](3, stride=2, padding=rng.choice([0, 1]))
        if kind == "average":
            return pools[1](2, padding=rng.choice([0, 1]))
        if kind == "cut":
            dilation = rng.choice([1, 2])
            after = self.conv(channels, wide, 3, dilation=dilation)
            return nn.Sequential(Cut(2 * dilation, rng.choice([0, 1])), after)
        if kind == "normed":
            return nn.Sequential(self.norm(channels), self.act())
        if kind == "gated":
            pool = nn.AdaptiveAvgPool1d(1) if self.dims == 1 else nn.AdaptiveAvgPool2d(1)
            return Gated(channels, pool, self.conv(channels, channels, 1))
        if kind == "across":
            if rng.random() < 0.4:
                return nn.Upsample(scale_factor=2)
            kernel, stride = rng.choice([(2, 2), (3, 2), (4, 2), (3, 1), (3, 3)])
            return self.across(channels, wide, kernel, stride=stride, padding=rng.choice([0, 1]))
        dilation = rng.choice([1, 1, 2])
        return self.conv(channels, wide, 3, padding=rng.choice([0, 1, 2]), dilation=dilation)


def random_cnn(seed: int) -> tuple[nn.Module, Tensor]:
    """A network and an example, in eval mode, with norms that have seen something."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    maker = _Maker(rng)
    channels = rng.choice([1, 2, 3])
    shape: Shape = (channels, *(rng.choice([7, 9, 12, 16, 18]) for _ in range(maker.dims)))
    x = torch.zeros(1, *shape)
    layers: list[nn.Module] = []
    for _ in range(rng.randint(2, 5)):
        layer = maker.layer(x.shape[1], min(x.shape[2:]))
        layer.eval()
        try:
            made = layer(x)
        except RuntimeError:  # its window is larger than the plane
            continue
        x = made
        layers.append(layer)
        if rng.random() < 0.5:
            layers.append(maker.norm(x.shape[1]))
        if rng.random() < 0.8:
            layers.append(maker.act())
    end = rng.choice(["pooled", "flat", "none", "wide"])
    if end == "pooled":
        pool = nn.AdaptiveAvgPool1d(1) if maker.dims == 1 else nn.AdaptiveAvgPool2d(1)
        layers += [pool, nn.Flatten(), nn.Linear(x.shape[1], 5)]
    elif end == "flat":
        layers += [nn.Flatten(), nn.Linear(x.numel(), 4), nn.Softmax(1)]
    elif end == "wide":
        layers += [nn.Flatten(), nn.Linear(x.numel(), 6), nn.ReLU(), nn.Linear(6, 3)]
    model = nn.Sequential(*layers).eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                assert module.running_mean is not None and module.running_var is not None
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2.0)
                module.bias.normal_()
        kept = rng.choice([0.3, 0.6, 1.0])
        for name, parameter in model.named_parameters():
            if name.endswith("weight") and parameter.dim() > 1:
                parameter.mul_(torch.rand_like(parameter) < kept)
                if parameter.dim() > 2 and rng.random() < 0.4:  # a channel that reads nothing
                    parameter[rng.randrange(len(parameter))] = 0
    return model, torch.zeros(1, *shape)
