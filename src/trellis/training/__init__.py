"""Training: recipes, stacks of networks, checkpoints and gradual pruning."""

from __future__ import annotations

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


def __dir__() -> list[str]:
    return list(__all__)
