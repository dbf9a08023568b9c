"""Models that teach another one."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import trellis
from tests.skeleton.moving import arms
from trellis.errors import TrellisError
from trellis.skeleton import Recognizer, Skeletons, Teaching, fit
from trellis.training import recipe_named

RECIPE = recipe_named("default", epochs=40, rate=5e-3)
SIZES: dict[str, Any] = {"chunks": 6, "heads": 3, "filters": 8}


def fresh(data: Skeletons | None = None, **changes: Any) -> Recognizer:
    data = arms() if data is None else data
    return Recognizer.fresh(data, data.folds[0], **(SIZES | changes))


@pytest.fixture(scope="module")
def teacher() -> Recognizer:
    return fit(fresh(), arms(), arms().folds[0], RECIPE)


def weights(recognizer: Recognizer) -> dict[str, Tensor]:
    return {name: weight.detach() for name, weight in recognizer.model.named_parameters()}


def same(one: Recognizer, other: Recognizer) -> bool:
    own, theirs = weights(one), weights(other)
    return all(torch.equal(own[name], theirs[name]) for name in own)


def learnt(data: Skeletons | None = None, **options: Any) -> Recognizer:
    data = arms() if data is None else data
    return fit(fresh(seed=1), data, data.folds[0], RECIPE, **options)


def test_who_is_not_heard_teaches_nothing(teacher: Recognizer) -> None:
    assert same(learnt(teaching=Teaching(teacher, weight=0.0)), learnt())


def test_who_alone_is_heard_makes_labels_worth_nothing(teacher: Recognizer) -> None:
    alone = Teaching(teacher, weight=1.0)
    labels = np.random.default_rng(0).permutation(arms().labels)
    shuffled = dataclasses.replace(arms(), labels=labels)
    taught = learnt(teaching=alone)
    assert same(taught, learnt(shuffled, teaching=alone)) and not same(taught, learnt())
    sequences = arms().sequences
    agree = taught.probabilities(sequences).argmax(1) == teacher.probabilities(sequences).argmax(1)
    assert agree.mean() > 0.9


def test_a_pruned_teacher_says_what_it_says(teacher: Recognizer) -> None:
    """Masked or baked in; and it is left as it was."""
    pruned = dataclasses.replace(teacher, model=copy.deepcopy(teacher.model))
    masks = trellis.prune(pruned.model, torch.zeros(1, 4, 18), sparsity=0.8)
    baked = dataclasses.replace(pruned, model=copy.deepcopy(pruned.model))
    masks.bake(baked.model)
    one, other = (learnt(teaching=Teaching(each)) for each in (pruned, baked))
    assert same(one, other) and trellis.masks_of(pruned.model) == masks


def test_a_teacher_may_be_larger_and_see_other_channels() -> None:
    data = arms()
    large = fit(
        fresh(heads=5, kinds=("coordinates", "bones"), basis="cosines"), data, data.folds[0], RECIPE
    )
    taught = learnt(teaching=Teaching(large, weight=1.0))
    said = taught.probabilities(data.sequences).argmax(1)
    assert (said == large.probabilities(data.sequences).argmax(1)).mean() > 0.9


def test_history_says_who_taught(teacher: Recognizer) -> None:
    last = learnt(teaching=Teaching(teacher, weight=0.5, temperature=3.0)).history[-1]
    assert (last["taught"]["weight"], last["taught"]["temperature"]) == (0.5, 3.0)
    assert len(last["taught"]["teachers"]) == 1
    assert learnt().history[-1]["taught"] is None


def test_teachers_that_cannot_be(teacher: Recognizer) -> None:
    data = arms()
    renamed = dataclasses.replace(data, classes=tuple(f"{name}!" for name in data.classes))
    for other, said in (
        (fresh(renamed), "other classes"),
        (fresh(chunks=7), "other chunks"),
        (fresh(size="alike"), "other normalization"),
    ):
        with pytest.raises(TrellisError, match=f"the teacher has {said} than its student"):
            learnt(teaching=Teaching(other))
    with pytest.raises(TrellisError, match=r"weight=1\.5"):
        Teaching(teacher, weight=1.5)
