"""How a network is trained: every setting in one visible block."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from ..errors import TrellisError
from ..limits import check_count

SCHEDULES = ("speed", "cosine")


@dataclass(frozen=True)
class Recipe:
    """Adam with decoupled weight decay on the cross entropy.

    ``schedule="speed"`` is the paper's rule: a network's rate is multiplied by 0.99 after a step
    at which its loss changed by more than at the step before, else divided by it, and stays
    within a hundredth and ten times the first. ``"cosine"`` falls from the first rate to nothing.

    ``batch`` is the most recordings a step sees, None for all of them. ``noise`` is the standard
    deviation of what is added to the (normalised) inputs, drawn anew at every step for every
    network.

    A network is trained (``epochs``, ``rate``), pruned gradually while it trains
    (``prune_epochs``, at a constant ``prune_rate``, masks renewed every ``prune_every`` epochs)
    and tuned under its last masks (``tune_epochs``, ``tune_rate``). Labels are smoothed by
    ``smoothing``, while it is tuned by ``tune_smoothing``, unless that is None.
    """

    name: str
    epochs: int
    tune_epochs: int
    rate: float
    tune_rate: float
    schedule: str
    batch: int | None = 600
    momentum: float = 0.9
    decay: float = 0.0
    smoothing: float = 0.0
    noise: float = 0.0
    prune_epochs: int = 1500
    prune_rate: float = 3e-3
    prune_every: int = 15
    tune_smoothing: float | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "prune_epochs", "prune_every", "tune_epochs", "batch"):
            value = getattr(self, name)
            if name == "batch" and value is None:
                continue
            check_count(name, value)
        shares = ["smoothing", "momentum"]
        if self.tune_smoothing is not None:
            shares.append("tune_smoothing")
        for name in ("rate", "prune_rate", "tune_rate", "decay", "noise", *shares):
            value = getattr(self, name)
            least = "above 0" if name.endswith("rate") else "from 0 up"
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and math.isfinite(value) and value >= 0) or (
                value == 0 and least == "above 0"
            ):
                raise TrellisError(f"{name}={value!r} is not a finite number {least}")
        for name in shares:
            if getattr(self, name) >= 1:
                raise TrellisError(f"{name}={getattr(self, name)!r} must be below 1")
        if self.schedule not in SCHEDULES:
            raise TrellisError(f"schedule={self.schedule!r} is unknown: {' or '.join(SCHEDULES)}")

    def to_dict(self) -> dict[str, Any]:
        """For a file: what JSON can hold."""
        return dataclasses.asdict(self)


RECIPES = {
    "paper": Recipe(
        "paper",
        epochs=2700,
        tune_epochs=2700,
        rate=1e-3,
        tune_rate=1e-3,
        schedule="speed",
        batch=None,
    ),
    "default": Recipe(
        "default",
        epochs=1000,
        tune_epochs=1000,
        rate=1e-3,
        tune_rate=5e-3,
        schedule="cosine",
        decay=0.1,
        smoothing=0.1,
        noise=0.05,
    ),
    "quick": Recipe(
        "quick",
        epochs=40,
        tune_epochs=45,
        rate=1e-3,
        tune_rate=5e-3,
        schedule="cosine",
        batch=100,
        decay=0.1,
        smoothing=0.1,
        noise=0.05,
    ),
}


def recipe_named(name: str, **changes: Any) -> Recipe:
    """The recipe called ``name``, with some settings changed.

    >>> recipe_named("paper", epochs=10).epochs
    10
    """
    if name not in RECIPES:
        raise TrellisError(f"recipe {name!r} is unknown: it is one of {', '.join(RECIPES)}")
    return dataclasses.replace(RECIPES[name], **changes)
