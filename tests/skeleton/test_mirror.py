"""Whether left and right mean anything: told by made-up people who lift one arm or the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from trellis.skeleton import Augmentation, Fold, Layout, Recognizer, Skeletons
from trellis.skeleton.shrink import Maker, course_named, mirror_of, shrink
from trellis.skeleton.shrink.mirror import SHARE, _traded

PERSON = Layout(
    "person", ("neck", "left", "right"), parents=(-1, 0, 0), mirror=(0, 2, 1)
)  # x is from left to right
LEFT, RIGHT = 1, 2
CHUNKS = 4
EITHER = (LEFT, RIGHT)


def lifts(arms: Sequence[int], high: float, count: int, seed: int) -> Tensor:
    """(count, joints, chunks * 3): people who lift these arms, now one and now the next."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.zeros(count, 3, CHUNKS, 3)
    x[:, LEFT, :, 0], x[:, RIGHT, :, 0] = -1, 1
    for i in range(count):
        x[i, arms[i % len(arms)], :, 1] = high * torch.linspace(0, 1, CHUNKS)
    return (x + 0.05 * torch.randn(x.shape, generator=generator)).flatten(2)


def recordings(*kinds: tuple[Sequence[int], float], count: int = 10) -> tuple[Tensor, Tensor]:
    x = torch.cat([lifts(*kind, count, seed) for seed, kind in enumerate(kinds)])
    return x, torch.arange(len(kinds)).repeat_interleave(count)


def people(x: Tensor, y: Tensor, classes: tuple[str, ...]) -> tuple[Skeletons, Fold]:
    frames = x.view(len(x), 3, CHUNKS, 3).transpose(1, 2).numpy()
    every = np.arange(len(x))
    fold = Fold("same", every, every)
    names = tuple(map(str, every))
    return Skeletons("people", tuple(frames), y.numpy(), classes, names, PERSON, (fold,)), fold


def test_actions_of_either_arm_are_mirrored() -> None:
    x, y = recordings((EITHER, 1.0), (EITHER, 3.0))
    assert mirror_of(x, y, PERSON, ("low", "high")) == (
        SHARE,
        "nearest neighbors agree for 20 of 20 mirrored recordings, 20 as recorded",
    )


def test_actions_that_are_each_others_mirror_image_are_not() -> None:
    x, y = recordings(((LEFT,), 3.0), ((RIGHT,), 3.0), (EITHER, 1.0), (EITHER, 6.0))
    share, why = mirror_of(x, y, PERSON, ("left", "right", "low", "high"))
    assert (share, why) == (0, "mirrored, 'left' looks like 'right' and vice versa")


def test_one_of_two_such_actions_alone_may_be_mirrored() -> None:
    """Nobody says that lifting the right arm is something else."""
    x, y = recordings(((LEFT,), 3.0), (EITHER, 1.0), (EITHER, 6.0))
    assert mirror_of(x, y, PERSON, ("left", "low", "high")).share == SHARE


def test_people_who_always_use_the_same_arm_are_not() -> None:
    x, y = recordings(*(((RIGHT,), high) for high in (1.0, 2.0, 3.0, 4.0)))
    share, why = mirror_of(x, y, PERSON, ("a", "b", "c", "d"))
    assert share == 0 and why.endswith("mirrored recordings, 40 as recorded")


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        (Layout("hand", PERSON.joints, PERSON.parents), "layout 'hand' has no mirror image"),
        (
            dataclasses.replace(PERSON, name="two", mirror=(0, 1, 2), roots=(1, 2)),
            "layout 'two' has 2 bodies, which would change sides",
        ),
    ],
)
def test_layouts_without_an_image_of_one(layout: Layout, why: str) -> None:
    x, y = recordings((EITHER, 1.0), (EITHER, 3.0))
    assert mirror_of(x, y, layout, ("low", "high")) == (0, why)


def test_one_person_may_have_a_root_on_either_side() -> None:
    x, y = recordings((EITHER, 1.0), (EITHER, 3.0))
    hips = dataclasses.replace(PERSON, roots=EITHER)
    assert mirror_of(x, y, hips, ("low", "high")).share == SHARE


def test_left_and_right_may_be_along_another_axis() -> None:
    x, y = recordings(((LEFT,), 3.0), ((RIGHT,), 3.0), (EITHER, 1.0), (EITHER, 6.0))
    turned = x.view(*x.shape[:2], CHUNKS, 3).roll(2, -1).flatten(2)  # x becomes z
    names = ("left", "right", "low", "high")
    assert mirror_of(turned, y, PERSON, names, left_right=2) == mirror_of(x, y, PERSON, names)
    assert mirror_of(turned, y, PERSON, names).share == 0  # the arms go where nobody's are


def test_recordings_that_are_like_any_class_say_nothing() -> None:
    """One of each action, of which there are two, to the left and to the right; or noise alone."""
    x, y = recordings(((LEFT,), 3.0), ((RIGHT,), 3.0), count=1)
    share, why = mirror_of(x, y, PERSON, ("left", "right"))
    assert share == 0 and why.endswith("mirrored recordings, 0 as recorded, too few to decide")
    noise = torch.randn(60, 3, CHUNKS * 3, generator=torch.Generator().manual_seed(0))
    share, why = mirror_of(noise, torch.arange(60) % 3, PERSON, ("a", "b", "c"))
    assert share == 0 and why.endswith("too few to decide")


def test_an_accident_between_two_of_many_classes_is_no_trade() -> None:
    """A recording each way, of two classes of ten that are otherwise like themselves."""
    plain = 10 * torch.eye(6, dtype=torch.long)
    mirrored = plain.clone()
    mirrored[0, :] = torch.tensor([1, 2, 2, 2, 2, 1])  # all over the place
    mirrored[1, :] = torch.tensor([2, 1, 2, 2, 2, 1])
    assert _traded(plain, mirrored) is None
    mirrored[0, :2], mirrored[1, :2] = torch.tensor([3, 6]), torch.tensor([5, 4])
    assert _traded(plain, mirrored) == (0, 1)


def test_a_share_that_was_given_is_left_as_it_is() -> None:
    x, y = recordings(((LEFT,), 3.0), ((RIGHT,), 3.0))
    data, fold = people(x, y, ("left", "right"))
    fresh = Recognizer.fresh(data, fold, chunks=CHUNKS, heads=2, filters=4)
    given = course_named("quick", augmentation=Augmentation(mirror=0.25))
    maker = Maker(fresh, x, y, given)
    assert maker.mirror is None and maker.course.augmentation == given.augmentation
    usual = Maker(fresh, x, y, course_named("quick", augmentation=Augmentation(left_right=2)))
    assert usual.mirror == mirror_of(x, y, PERSON, ("left", "right"), left_right=2)


def test_it_does_not_matter_from_which_side_a_set_was_recorded() -> None:
    x, y = recordings(((LEFT, RIGHT, RIGHT), 1.0), ((RIGHT,), 2.0), ((LEFT,), 4.0))
    other = x.view(len(x), 3, CHUNKS, 3)[:, list(PERSON.mirror or ())] * torch.tensor([-1, 1, 1])
    names = ("a", "b", "c")
    assert mirror_of(other.flatten(2), y, PERSON, names) == mirror_of(x, y, PERSON, names)


def test_many_recordings_are_sampled() -> None:
    x, y = recordings((EITHER, 1.0), (EITHER, 3.0), count=1500)
    why = mirror_of(x, y, PERSON, ("low", "high")).why
    assert why.startswith("nearest neighbors agree for 2000 of 2000 ")


def test_one_recording_says_nothing() -> None:
    x, y = recordings(((LEFT,), 1.0), count=1)
    assert mirror_of(x, y, PERSON, ("low",)).share == 0


def test_a_course_follows_unless_told_not_to() -> None:
    """Also where it searches: by what all training recordings say."""
    x, y = recordings((EITHER, 1.0), (EITHER, 3.0))
    data, fold = people(x, y, ("low", "high"))
    course = course_named("quick").times(0.05)
    shares = []
    cases: list[tuple[bool, dict[str, Any]]] = [
        (True, {"sparsity": 0.5}), (False, {"sparsity": 0.5}), (True, {"at_least": 0.01})
    ]  # fmt: skip
    for mirror, asked in cases:
        fresh = Recognizer.fresh(data, fold, chunks=CHUNKS, heads=2, filters=4)
        seen: set[float] = set()

        def watch(_: str, training: Any, seen: set[float] = seen) -> None:
            seen.add(training.feed.settings.mirror)

        given = dataclasses.replace(course, mirror=mirror)
        made = shrink(fresh, data, fold, given, watch=watch, **asked)
        step = made.small.history[-1]
        shares.append((step["course"]["augmentation"]["mirror"], *seen))
        assert (step["mirror"] is not None) == mirror
    assert shares == [(SHARE, SHARE), (0, 0), (SHARE, SHARE)]
