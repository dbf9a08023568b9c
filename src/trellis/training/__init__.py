"""Training: recipes, stacks of networks, checkpoints and gradual pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..imports import lazy

if TYPE_CHECKING:
    from .checkpoint import read_checkpoint as read_checkpoint
    from .checkpoint import remove_checkpoint as remove_checkpoint
    from .checkpoint import run
    from .checkpoint import write_checkpoint as write_checkpoint
    from .distillation import Teachers
    from .recipe import RECIPES, Recipe, recipe_named
    from .stacks import Forward as Forward
    from .stacks import Weights as Weights
    from .stacks import forward_of, stack, unstack
    from .trainer import Training, accuracies, predictions
    from .trainer import losses as losses

# The public names. The others are for other rooms of the package.
__all__ = [
    "RECIPES",
    "Recipe",
    "Teachers",
    "Training",
    "accuracies",
    "forward_of",
    "predictions",
    "recipe_named",
    "run",
    "stack",
    "unstack",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "RECIPES": ".recipe",
        "Forward": ".stacks",
        "Recipe": ".recipe",
        "Teachers": ".distillation",
        "Training": ".trainer",
        "Weights": ".stacks",
        "accuracies": ".trainer",
        "forward_of": ".stacks",
        "losses": ".trainer",
        "predictions": ".trainer",
        "read_checkpoint": ".checkpoint",
        "recipe_named": ".recipe",
        "remove_checkpoint": ".checkpoint",
        "run": ".checkpoint",
        "stack": ".stacks",
        "unstack": ".stacks",
        "write_checkpoint": ".checkpoint",
    },
)
