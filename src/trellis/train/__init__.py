"""Training: recipes, and many networks at once."""

from .checkpoint import read_checkpoint, remove_checkpoint, run, write_checkpoint
from .recipe import RECIPES, Recipe, recipe_named
from .stacked import Forward, Weights, forward_of, stack, unstack
from .teachers import Teachers
from .training import Training, accuracies, losses, predictions

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
