"""Small recognisers, made of tiny recordings in a moment."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from tests.skeleton.moving import arms
from trellis.skeleton import Recogniser
from trellis.skeleton.shrink import Course, Outcome, course_named, shrink

DATA = arms()
(FOLD,) = DATA.folds
EPOCHS: dict[str, Any] = {
    "epochs": 20, "prune_epochs": 20, "prune_every": 4, "tune_epochs": 20, "batch": None
}  # fmt: skip


def course(**changes: Any) -> Course:
    quick = course_named("quick", **{"teachers": 2} | changes)
    return dataclasses.replace(quick, recipe=dataclasses.replace(quick.recipe, **EPOCHS))


def fresh(**options: Any) -> Recogniser:
    return Recogniser.fresh(DATA, FOLD, chunks=6, heads=3, filters=8, **options)


def made(given: Course | None = None, **options: Any) -> Outcome:
    recogniser = options.pop("recogniser", None) or fresh()
    return shrink(recogniser, options.pop("data", DATA), FOLD, given or course(), **options)


def same(ours: Recogniser, theirs: Recogniser) -> bool:
    mine, other = ours.model.state_dict(), theirs.model.state_dict()
    return mine.keys() == other.keys() and all(torch.equal(mine[n], other[n]) for n in mine)
