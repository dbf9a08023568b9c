"""A trained model named on the command line, and the data that goes with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from trellis.cli.fitting import chosen_fold
from trellis.skeleton import Fold, Recogniser, Skeletons

ModelFolder = Annotated[
    Path,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="FOLDER", help="A model: what `trellis train`, `prune` or `tune` wrote."),
]


def fold_for(recogniser: Recogniser, data: Skeletons, wanted: str | None) -> Fold:
    """The fold that is asked for, else the one the model was trained on, else the first.

    A model that is tested on another fold than its own has seen the answers.
    """
    if wanted is None:
        names = {fold.name for fold in data.folds}
        seen = [step["fold"] for step in recogniser.history if step.get("fold") in names]
        wanted = str(seen[-1]) if seen else None
    return chosen_fold(data, wanted)
