"""Training recipes: epochs, learning rates, batch size and regularization."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from ..errors import TrellisError
from ..limits import check_count

SCHEDULES = ("speed", "cosine")
FIRST_WEIGHTS = ("usual", "fan-in")
ORIGINS = ("recording", "frame")  # of skeletons; `Normalization` has the same list


@dataclass(frozen=True)
class Recipe:
    """The settings of training with Adam and decoupled weight decay on the cross entropy.

    A network is trained, pruned gradually while it trains, and fine-tuned under its last masks.

    Args:
        name: The name of the recipe.
        epochs: Epochs of training.
        tune_epochs: Epochs of fine-tuning.
        rate: First learning rate of training.
        tune_rate: First learning rate of fine-tuning.
        schedule: "cosine" falls from the first rate to 0. "speed" is the paper's rule: a network's
            rate is multiplied by 0.99 if its loss changed more than at the step before, else
            divided by it; it stays between a hundredth and ten times the first rate.
        batch: The most recordings per step; None for all of them.
        momentum: Decay rate of Adam's average of gradients.
        decay: Weight decay.
        smoothing: Label smoothing.
        noise: Standard deviation of the noise on the normalized inputs.
        prune_epochs: Epochs of gradual pruning.
        prune_rate: Learning rate of gradual pruning, which is constant.
        prune_every: Epochs between two mask updates.
        tune_smoothing: Label smoothing of fine-tuning (default: ``smoothing``).
        first_weights: How a new `GCN` draws its weights (its argument of this name).
        origin: The origin of coordinates of a new recognizer (`Normalization`).

    Raises:
        TrellisError: A setting is out of range.
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
    first_weights: str = FIRST_WEIGHTS[0]
    origin: str = ORIGINS[0]

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
                raise TrellisError(f"expected a finite number {least}, got {name}={value!r}")
        for name in shares:
            if getattr(self, name) >= 1:
                raise TrellisError(f"expected {name} below 1, got {name}={getattr(self, name)!r}")
        if self.schedule not in SCHEDULES:
            raise TrellisError(f"unknown schedule {self.schedule!r}; known: {', '.join(SCHEDULES)}")
        for name, known in (("first_weights", FIRST_WEIGHTS), ("origin", ORIGINS)):
            if getattr(self, name) not in known:
                raise TrellisError(
                    f"unknown {name}={getattr(self, name)!r}; known: {', '.join(known)}"
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them.

        Usual first weights and origins are left out, so that files of earlier releases compare
        equal.
        """
        found = dataclasses.asdict(self)
        for name, known in (("first_weights", FIRST_WEIGHTS), ("origin", ORIGINS)):
            if found[name] == known[0]:
                del found[name]
        return found


RECIPES = {
    "paper": Recipe(
        "paper",
        epochs=2700,
        tune_epochs=2700,
        rate=1e-2,
        tune_rate=1e-3,
        schedule="speed",
        batch=None,
        first_weights="fan-in",
        origin="frame",
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
    """Return the recipe called ``name``, with some settings changed.

    Args:
        name: "paper", "default" or "quick".
        **changes: Fields of `Recipe`.

    >>> recipe_named("paper", epochs=10).epochs
    10
    """
    if name not in RECIPES:
        raise TrellisError(f"unknown recipe {name!r}; known: {', '.join(RECIPES)}")
    return dataclasses.replace(RECIPES[name], **changes)
