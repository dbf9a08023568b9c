"""A trained model named on the command line, and the data that goes with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro

from trellis.cli.sources import chosen_fold
from trellis.errors import TrellisError
from trellis.skeleton import Fold, Recogniser, Skeletons

ModelFolder = Annotated[
    Path,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="FOLDER", help="A model: what `trellis train`, `prune` or `tune` wrote."),
]


def protocol_for(recogniser: Recogniser, source: str, wanted: str | None) -> str | None:
    """The protocol that is asked for, else the one the model was last trained by on such data."""
    found = _last(recogniser, source).get("protocol") if wanted is None else wanted
    return None if found is None else str(found)


def fold_for(recogniser: Recogniser, data: Skeletons, wanted: str | None) -> Fold:
    """The fold that is asked for, else the one the model was last trained on.

    Tested on another, a model has seen the answers: where the data has no such fold, this is an
    error. Data of another kind (``csv:`` after ``fpha:``) is taken to be other recordings, of
    which it has seen none: there it is the first fold. Two ``csv:`` folders may well hold the same
    recordings, so they are of one kind.
    """
    step = _last(recogniser, data.source)
    names = [fold.name for fold in data.folds]
    if wanted is None and step:
        wanted = str(step["fold"])
        if wanted not in names:
            by = f" by protocol {step['protocol']!r}" if step.get("protocol") else ""
            raise TrellisError(
                f"the model was trained on fold {wanted!r} of {step['source']!r}{by}, and "
                f"{data.source!r} has {', '.join(names)}, whose test recordings it may have seen: "
                "divide the data as it was then (--protocol), or name a fold all the same (--fold)"
            )
    return chosen_fold(data, wanted)


def _last(recogniser: Recogniser, source: str) -> dict[str, Any]:
    """The last step of its history that trained on data of this kind; nothing if none did."""
    steps = [step for step in recogniser.history if "fold" in step and "source" in step]
    same = [step for step in steps if _kind(str(step["source"])) == _kind(source)]
    return same[-1] if same else {}


def _kind(source: str) -> str:
    """
    >>> _kind("fpha:~/hands"), _kind("hands45")
    ('fpha', 'hands45')
    """
    return source.partition(":")[0]
