"""Training: recipes, stacks of networks, checkpoints and gradual pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .checkpoint import read_checkpoint, remove_checkpoint, run, write_checkpoint
    from .distillation import Teachers
    from .recipe import RECIPES, Recipe, recipe_named
    from .stacks import Forward, Weights, forward_of, stack, unstack
    from .trainer import Training, accuracies, losses, predictions

__all__ = [
    "RECIPES",
    "Forward",
    "Recipe",
    "Teachers",
    "Training",
    "Weights",
    "accuracies",
    "forward_of",
    "losses",
    "predictions",
    "read_checkpoint",
    "recipe_named",
    "remove_checkpoint",
    "run",
    "stack",
    "unstack",
    "write_checkpoint",
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
