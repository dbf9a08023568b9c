"""What each connection is worth: magnitude, or whatever the user says."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import TrellisError
from ..graph.current import Current

Saliency = str | Mapping[str, Tensor] | Callable[[str, Tensor], Tensor]


class Magnitude(Mapping[str, Tensor]):
    """|w| of float32 weights, worked out when asked for: large models should not be copied
    only to have their signs removed. ``signed`` has them as they are."""

    def __init__(self, signed: dict[str, Tensor]) -> None:
        self.signed = signed

    def __getitem__(self, name: str) -> Tensor:
        return self.signed[name].abs()

    def __iter__(self) -> Iterator[str]:
        return iter(self.signed)

    def __len__(self) -> int:
        return len(self.signed)


def saliency_of(now: Current, names: list[str], given: Saliency) -> Mapping[str, Tensor]:
    """float32, in the parameters' shapes, for each of ``names``; see `finite` for the values."""
    found: dict[str, Tensor] = {}
    if isinstance(given, str):
        if given != "magnitude":
            raise TrellisError(
                f"saliency={given!r} is unknown: it is 'magnitude', a mapping of names to "
                "tensors, or a function (name, parameter) -> tensor"
            )
        found = {n: now.weights[n].to(torch.float32) for n in names}
    elif isinstance(given, Mapping):
        missing = [n for n in names if n not in given]
        if missing:
            raise TrellisError(
                f"saliency has no tensor for {missing[0]!r}; it needs one for each of "
                f"{', '.join(names[:8])}{' …' if len(names) > 8 else ''}, or ignore=[…] the rest"
            )
        found = {n: _tensor(n, given[n], now.weights[n]) for n in names}
    elif callable(given):
        found = {n: _tensor(n, given(n, now.weights[n]), now.weights[n]) for n in names}
    else:
        raise TrellisError(f"saliency={given!r:.60} is neither a name, a mapping nor a function")
    return Magnitude(found) if given == "magnitude" else found


def finite(saliency: Mapping[str, Tensor], names: Collection[str]) -> None:
    """Refuse values that are not numbers, or not finite, of the parameters called ``names``."""
    if not names:
        return
    magnitude = isinstance(saliency, Magnitude)
    values = saliency.signed if isinstance(saliency, Magnitude) else saliency
    sums = torch.stack([values[name].sum() for name in names]).tolist()  # one question
    for name, total in zip(names, sums, strict=True):
        if math.isfinite(total):  # it is not if any entry is not
            continue
        bad = values[name][~torch.isfinite(values[name])]
        if bad.numel():
            raise TrellisError(
                f"{'weights' if magnitude else 'saliency'} of {name!r} hold {bad.numel()} values "
                f"that are not finite (such as {float(bad[0])}); repair them before pruning"
            )


def _tensor(name: str, value: Any, weight: Tensor) -> Tensor:
    if not isinstance(value, Tensor) or value.shape != weight.shape:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise TrellisError(
            f"saliency of {name!r} is {shape}; it must be a tensor of shape {tuple(weight.shape)}"
        )
    return value.detach().to(device=weight.device, dtype=torch.float32).contiguous()


def not_negative(saliency: Mapping[str, Tensor], method: str) -> None:
    """Methods that multiply along paths need saliencies of zero or more."""
    if isinstance(saliency, Magnitude):
        return
    for name, value in saliency.items():
        if value.numel() and float(value.amin()) < 0:
            raise TrellisError(
                f"method {method!r} multiplies saliencies along paths, and {name!r} has "
                f"negative ones (such as {float(value.amin())}); pass absolute values"
            )


def perturbed(saliency: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Saliency divided by independent exponential draws.

    Taking the k largest of these is sampling k without replacement in proportion to saliency
    (an exponential race), and the same as adding Gumbel noise to its logarithm. The draws come
    from a CPU generator, in the order of the parameters.
    """
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, value in saliency.items():
        u = torch.rand(value.shape, generator=generator, dtype=torch.float64)
        draws = -torch.log1p(-u).clamp(max=-1e-300)
        found[name] = (value.cpu().to(torch.float64) / draws).to(torch.float32).clamp(max=3e38)
        found[name] = found[name].to(value.device)
    return found


def uniform(saliency: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """The same chance for every connection."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(value.shape, generator=generator).to(value.device)
        for name, value in saliency.items()
    }
