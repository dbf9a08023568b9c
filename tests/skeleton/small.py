"""Small recognisers, made of tiny recordings in a moment."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.skeleton.moving import arms
from trellis.skeleton import Recognizer
from trellis.skeleton.shrink import Course, Outcome, course_named, shrink
from trellis.training import Training

DATA = arms()
(FOLD,) = DATA.folds
EPOCHS: dict[str, Any] = {
    "epochs": 20, "prune_epochs": 20, "prune_every": 4, "tune_epochs": 20, "batch": None
}  # fmt: skip


def course(**changes: Any) -> Course:
    quick = course_named("quick", **{"distill": True} | changes)
    return dataclasses.replace(quick, recipe=dataclasses.replace(quick.recipe, **EPOCHS))


def fresh(**options: Any) -> Recognizer:
    return Recognizer.fresh(DATA, FOLD, chunks=6, heads=3, filters=8, **options)


def made(given: Course | None = None, **options: Any) -> Outcome:
    recognizer = options.pop("recognizer", None) or fresh()
    return shrink(recognizer, options.pop("data", DATA), FOLD, given or course(), **options)


def killed_and_resumed(
    phase: str, epoch: int, folder: Path, **options: Any
) -> tuple[Outcome, tuple[str, int]]:
    """What is made by a run that was killed there and begun again, and where it then went on."""

    class Killed(Exception):
        pass

    def kill(now: str, training: Training) -> None:
        if (now, training.epochs_done) == (phase, epoch):
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trellis.training.checkpoint.EVERY", 0.0)
        with pytest.raises(Killed):
            made(folder=folder, watch=kill, **options)
    seen: list[tuple[str, int]] = []
    outcome = made(
        folder=folder, watch=lambda now, each: seen.append((now, each.epochs_done)), **options
    )
    return outcome, seen[0]


def same(ours: Recognizer, theirs: Recognizer) -> bool:
    mine, other = ours.model.state_dict(), theirs.model.state_dict()
    return mine.keys() == other.keys() and all(torch.equal(mine[n], other[n]) for n in mine)
