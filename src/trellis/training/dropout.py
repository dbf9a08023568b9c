"""Leaving out hidden units while a network trains, so that none of them relies on another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import TrellisError
from .batches import stream
from .stacks import Weights


class Dropping:
    """At every step, network i does without a share ``shares[i]`` of the units that its parameter
    ``name`` (networks, outputs, units) reads; what is left counts for more, so that sums stay what
    they are on average. All recordings of a step lack the same units: so it is the parameter's
    columns that are multiplied, and the network's own function need not know.

    Which units depends on a network's seed and the step alone. ``drawn(step)`` chooses them, in a
    tensor that stays where it is; ``applied(weights)`` is differentiable. Where the parameter reads
    some of the units only, ``read`` (networks, columns) says which.

    >>> dropping = Dropping("dense", [0.5], units=6, seeds=[0], device=torch.device("cpu"))
    >>> dropping.drawn(step=3)
    >>> dropping.applied({"dense": torch.ones(1, 1, 6)})["dense"]
    tensor([[[0., 2., 0., 0., 0., 2.]]])
    """

    def __init__(
        self,
        name: str,
        shares: Sequence[float],
        units: int,
        seeds: Sequence[int],
        device: torch.device,
        read: Tensor | None = None,
    ) -> None:
        if len(shares) != len(seeds):
            raise TrellisError(f"{len(shares)} shares to drop and {len(seeds)} networks")
        for share in shares:
            if not 0 <= share < 1:
                raise TrellisError(f"a share of {share!r} units is dropped: give 0 to below 1")
        self.name, self.shares, self.seeds = name, list(shares), list(seeds)
        self.factors = torch.ones(len(seeds), 1, units, device=device)
        self.read = None if read is None else read[:, None]
        self.generator = torch.Generator(device)

    def to_dict(self) -> dict[str, Any]:
        """What the result depends on, as JSON holds it."""
        return {"name": self.name, "shares": self.shares}

    def drawn(self, step: int) -> None:
        """Choose the units of a step."""
        for factors, share, seed in zip(self.factors, self.shares, self.seeds, strict=True):
            if share > 0:  # other streams than those of noise and variants
                self.generator.manual_seed(stream(-1 - seed, step))
                factors.bernoulli_(1 - share, generator=self.generator).div_(1 - share)

    def applied(self, weights: Weights) -> Weights:
        """The same weights, but without what reads those units."""
        found = dict(weights)
        factors = self.factors if self.read is None else self.factors.gather(2, self.read)
        found[self.name] = weights[self.name] * factors
        return found
