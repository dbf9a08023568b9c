"""The importance of each connection: its magnitude, or values that the user gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import TrellisError
from ..graph.trellis import Current

NAMES = ("magnitude", "relative")
GATHERED = ("taylor", "gradient-magnitude", "movement", "wanda")  # from data, in the room training
Saliency = str | Mapping[str, Tensor] | Callable[[str, Tensor], Tensor]


class Magnitudes(Mapping[str, Tensor]):
    """|w| of float32 weights, computed on access.

    Large models are not copied only to remove signs. ``signed`` holds the weights with signs.
    """

    def __init__(self, signed: dict[str, Tensor]) -> None:
        self.signed = signed

    def __getitem__(self, name: str) -> Tensor:
        return self.signed[name].abs()

    def __iter__(self) -> Iterator[str]:
        return iter(self.signed)

    def __len__(self) -> int:
        return len(self.signed)


def saliency_of(now: Current, names: list[str], given: Saliency) -> Mapping[str, Tensor]:
    """Return the saliency of the parameters ``names``: float32, in their shapes.

    Values may still be infinite or NaN; see `finite`.
    """
    found: dict[str, Tensor] = {}
    if isinstance(given, str):
        if given in GATHERED:
            raise TrellisError(
                f"saliency={given!r} needs data: give it to trellis.Pruner or trellis.shrink, or "
                f"pass trellis.saliency(model, batches, kind={given!r}) here"
            )
        if given not in NAMES:
            raise TrellisError(
                f"saliency={given!r} is unknown: expected {', '.join(map(repr, NAMES))}, a mapping "
                "of names to tensors, or a function (name, parameter) -> tensor"
            )
        found = {n: now.weights[n].to(torch.float32) for n in names}
        if given == "relative":
            found = {n: relative(w) for n, w in found.items()}
    elif isinstance(given, Mapping):
        missing = [n for n in names if n not in given]
        if missing:
            raise TrellisError(
                f"saliency has no tensor for {missing[0]!r}; give one for each of "
                f"{', '.join(names[:8])}{' …' if len(names) > 8 else ''}, or ignore=[…] the rest"
            )
        found = {n: _tensor(n, given[n], now.weights[n]) for n in names}
    elif callable(given):
        found = {n: _tensor(n, given(n, now.weights[n]), now.weights[n]) for n in names}
    else:
        raise TrellisError(f"saliency={given!r:.60} is neither a name, a mapping nor a function")
    return Magnitudes(found) if given == "magnitude" else found


def relative(weight: Tensor) -> Tensor:
    """Return |w| relative to the other weights of its row and of its column.

    Rows are the first dimension and columns the second: outputs and inputs of linear layers and
    convolutions. |w| is divided by the geometric mean of the two root mean squares.
    """
    w = weight.abs()
    if w.ndim < 2:
        return w
    scale = torch.ones((), dtype=torch.float64, device=w.device)
    for dim in (0, 1):
        others = [d for d in range(w.ndim) if d != dim]
        scale = scale * w.to(torch.float64).square().mean(others, keepdim=True).sqrt().sqrt()
    return torch.where(w > 0, w / scale.clamp(min=1e-30), torch.zeros_like(w)).to(torch.float32)


def finite(saliency: Mapping[str, Tensor], names: Collection[str], what: str = "") -> None:
    """Refuse NaN and infinity in the values of the parameters ``names``.

    Args:
        saliency: Values by parameter name.
        names: Parameters to check.
        what: What the values are, for the error message.

    Raises:
        TrellisError: If a value is not finite.
    """
    if not names:
        return
    magnitudes = isinstance(saliency, Magnitudes)
    values = saliency.signed if isinstance(saliency, Magnitudes) else saliency
    what = what or ("weights of" if magnitudes else "saliency of")
    sums = torch.stack([values[name].sum() for name in names]).tolist()  # one transfer from a GPU
    for name, total in zip(names, sums, strict=True):
        if math.isfinite(total):  # one entry that is not finite makes the sum not finite
            continue
        bad = values[name][~torch.isfinite(values[name])]
        if bad.numel():
            raise TrellisError(
                f"{what} {name!r} hold {bad.numel()} values that are not finite (such as "
                f"{float(bad[0])}); repair them before pruning"
            )


def _tensor(name: str, value: Any, weight: Tensor) -> Tensor:
    if not isinstance(value, Tensor) or value.shape != weight.shape:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise TrellisError(
            f"saliency of {name!r} is {shape}; it must be a tensor of shape {tuple(weight.shape)}"
        )
    return value.detach().to(device=weight.device, dtype=torch.float32).contiguous()


def not_negative(saliency: Mapping[str, Tensor], method: str) -> None:
    """Refuse negative saliencies, for sampling and for methods that multiply along paths."""
    if isinstance(saliency, Magnitudes):
        return
    for name, value in saliency.items():
        if value.numel() and float(value.amin()) < 0:
            raise TrellisError(
                f"method {method!r} needs saliencies of 0 or more here, and {name!r} has "
                f"negative ones (such as {float(value.amin())}); pass absolute values"
            )


def perturbed(saliency: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Divide the saliency by independent exponential draws.

    The k largest results are a sample of k connections without replacement, in proportion to
    saliency (an exponential race). It equals adding Gumbel noise to the logarithm. Draws come from
    a CPU generator, in the order of the parameters.
    """
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, value in saliency.items():
        u = torch.rand(value.shape, generator=generator, dtype=torch.float64)
        draws = -torch.log1p(-u).clamp(max=-1e-300)
        found[name] = (value.cpu().to(torch.float64) / draws).to(torch.float32).clamp(max=3e38)
        found[name] = found[name].to(value.device)
    return found


def lifted(worth: Mapping[str, Tensor], fresh: Mapping[str, Tensor] | None) -> Mapping[str, Tensor]:
    """Raise ``fresh`` connections to the maximum of their parameter.

    A connection that is about to return has weight 0. At the maximum it returns unless all of its
    paths are poor.
    """
    if fresh is None:
        return worth
    return {
        name: torch.where(fresh[name], value.max(), value) if fresh[name].any() else value
        for name, value in worth.items()
    }
