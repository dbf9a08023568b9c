"""Warnings above the tables and notes below them."""

from __future__ import annotations

from collections.abc import Sequence

from .figures import Summary
from .plan import architecture_of
from .published import PARAMETERS, TEST_RECORDINGS
from .settings import Data, Settings, is_benchmark


def warnings(settings: Settings, data: Data, missing: int, wanted: int) -> tuple[str, ...]:
    """Return the warnings that stand above the table."""
    found = []
    if data.synthetic:
        found.append(
            f"SYNTHETIC DATA: {settings.data} is made by a program. Its figures compare "
            "methods; they say nothing about real recordings."
        )
    if not is_benchmark(settings, data):
        found.append(
            "The paper's figures are of FPHA, 1:1 split. They stand here for orientation and "
            "cannot be compared with figures on other data."
        )
    if missing:
        found.append(
            f"UNFINISHED: {missing:,} of {wanted:,} networks are not trained yet; give the "
            "command below again to continue."
        )
    return tuple(found)


def spread(settings: Settings, data: Data) -> str:
    """Return the note about means and deviations."""
    folds = (
        f" A seed's figure is the mean over its {len(data.folds)} folds, weighted by their test "
        "recordings."
        if len(data.folds) > 1
        else ""
    )
    if settings.seeds == 1:
        return f"One seed: no spread is known.{folds}"
    return (
        f"Figures are mean ± sample standard deviation over {settings.seeds} seeds (each a first "
        f"network, its noise and its sampling).{folds}"
    )


def accuracy(settings: Settings, data: Data) -> str:
    """Return the note about the two accuracies."""
    compare = ": compare it with that column" if is_benchmark(settings, data) else ""
    return (
        "Top-1 is over test recordings, mean-class the mean over classes. The paper's text says "
        f"the latter, but each of its accuracies is k/{TEST_RECORDINGS} cut after two decimals, so "
        f"top-1{compare}. It gives one run each and no spread; one recording is 0.17 points."
    )


def size(settings: Settings, data: Data) -> str:
    """Return the note about the network's size."""
    total = architecture_of(settings, data).connections
    return (
        f"The paper's network has {PARAMETERS:,} parameters, not all of whose shapes can be "
        f"recovered from its text; this one has {total:,}."
    )


def training(settings: Settings) -> str:
    """Return the note about the recipe."""
    recipe = settings.recipe
    if recipe.name == "paper":
        return (
            f"The paper does not give the first rate ({recipe.rate:g} here) nor the length and "
            f"rate of fine-tuning ({recipe.tune_epochs:,} epochs from {recipe.tune_rate:g} here). "
            "Here, each network follows the paper's rule by its own loss, between a hundredth and "
            "ten times the first rate. These open details may explain lower figures at extreme "
            "rates."
        )
    return (
        f"Recipe {recipe.name!r} is not the paper's training. The recipe 'paper' is: 2,700 "
        "full-batch Adam steps with the paper's learning-rate rule."
    )


def for_table2(settings: Settings, data: Data, rows: Sequence[Summary]) -> list[str]:
    """Return the notes of table 2."""
    notes = [
        "% live: the share of kept connections on a path of kept connections from an input to an "
        "output (the paper's A-C), audited after pruning and before fine-tuning.",
        "MP removes the same rate from every layer, as the paper's counts show its own does; "
        "stochastic MP samples without replacement, in proportion to magnitude, in each layer.",
        "A confound of the paper: MP by layer leaves most of its budget in the dense layer, while "
        "chains add about one connection per layer each. Part of what TC gains is this better "
        "allocation: compare the rows MP with TC's layer budgets, global MP and LAMP.",
        "Of the paper's own figures, with TC stochasticity helps at 75, 90 and 99.9 % and hurts "
        "at 95 and 99 %; without TC it helps at 75, 90 and 95 % and hurts beyond. Its claim that "
        "MP under-fits at high rates can be checked in the training column.",
        "Pruned networks are made of the dense network of their seed and fine-tuned: they have "
        "seen more epochs than the dense row.",
    ]
    if {"phew", "viterbi"} & set(settings.rows):
        notes.append(
            "viterbi and PHEW-like walks reach every class, as Trellis does by default "
            "(cover_outputs); the paper's own methods reserve no paths for that."
        )
    if {"synflow", "phew", "lamp"} & set(settings.rows):
        notes.append(
            "SynFlow, PHEW-like walks and LAMP are applied to the trained weights here, like all "
            "others; the first two were proposed for networks before training."
        )
    return notes + exceptions(rows)


def for_table3(rows: Sequence[Summary]) -> list[str]:
    """Return the notes of table 3."""
    return [
        "TC and stochastic, under the global surrogate: Eq. 4 is 1/α = 1, Eq. 5 the others. The "
        "paper's caption says α = 10 and means 1/α = 10.",
        "Of the paper's own figures, the global surrogate beats the local one (73.39) only at "
        "1/α = 10.",
        *exceptions(rows),
    ]


def exceptions(rows: Sequence[Summary]) -> list[str]:
    """Return the notes about disconnected networks and rows that could not be pruned."""
    found = []
    if any(row.disconnected > 0 for row in rows):
        found.append(
            "A disconnected network has no path left and gives every recording the same class. "
            "Where all networks of a row are, accuracies are NA; where some are, they count."
        )
    found += [f"{row.row.key}: not possible: {row.refused}" for row in rows if row.refused]
    return found
