"""How a network is made small: every setting in one visible block."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from ...errors import TrellisError
from ...training import Recipe
from ...training.batches import batch_count
from ...training.distillation import check_teaching
from ..data.augmentation import Augmentation
from ..data.layouts import Layout
from ..model.stack_selection import check_method

_USUAL = 600  # the recordings of a set that a recipe's epochs are meant for
_FEWEST = 40  # epochs that a phase has, however many recordings there are
_PLENTY = 100  # who keeps one connection in so many learns all, with hidden units to spare
_FEW = 1000  # who keeps fewer than one in so many has been a network that keeps so many
_MANY = 100  # networks, trained side by side: more than that is meant for something else
_NARROWER = (6, 7, 8, 9)  # tenths of pruning: when many a filter is empty, and then many more
LONGEST = 1_000_000  # times as long as it was meant: nobody waits for more
_PHASES = ("epochs", "prune_epochs", "prune_every", "tune_epochs")


@dataclass(frozen=True)
class Course:
    """Train, prune gradually, tune: three phases of one ``recipe``, whose epochs are those of a set
    of 600 recordings. Sets of other sizes take as many steps (`suited`).

    A dense network is trained, then pruned while it trains on: along ``curve``
    (`trellis.Schedule`), by ``method``, what a connection is worth being its magnitude times its
    gradient to the power ``sensitivity``, and then tuned,
    in the default recipe on labels that are no longer smoothed. The first renewal leaves at most
    ``surplus`` times as many connections as there will be (None: as many as the curve says), so
    that most of the time is spent where it is hard to say what to keep.

    Where left and right mean nothing (`mirror_of`), ``mirror`` exchanges them in half of the
    variants; an ``augmentation`` that mirrors by itself is left as it is.

    While it is pruned and tuned, every step leaves out a share ``drop`` of the hidden units that
    classes are read from (`dropped`): none of them then relies on another, and what stays is worth
    more on recordings that it has not seen. A network that keeps a thousandth or less has none to
    spare.

    With an ``agreement`` above 0, one that keeps a hundredth or more, and is not taught, is drawn
    to say the same of two variants of a recording (`trellis.training.batches.Agreement`), with that
    weight. That is for recordings of one camera, where others will be used.

    ``teachers`` are networks that keep a hundredth, so many of them, each made in this way of a
    dense network of its own. While a network is pruned and tuned it learns from the average of
    their answers as well as from labels: ``weight`` is their share of the loss, ``temperature`` how
    much those are flattened. If None, a network that keeps less than a hundredth has one, and
    others have none. Who keeps less than its teachers goes on from the first of them, and so learns
    from what it was itself; who keeps less than a thousandth is first made, in the same way, one
    that keeps a thousandth (`waypoint`).
    """

    recipe: Recipe
    augmentation: Augmentation | None = field(default_factory=Augmentation)
    mirror: bool = True
    drop: float = 0.3
    agreement: float = 0.0
    teachers: int | None = None
    weight: float = 0.8
    temperature: float = 2.0
    method: str = "viterbi"
    sensitivity: float = 0.5
    curve: str = "geometric"
    surplus: float | None = 30.0

    def __post_init__(self) -> None:
        count = self.teachers
        whole = isinstance(count, int) and not isinstance(count, bool)
        if count is not None and not (whole and 0 <= count <= _MANY):
            raise TrellisError(f"teachers={count!r} is not a whole number from 0 to {_MANY}")
        for name in ("drop", "agreement", "weight", "temperature", "sensitivity", "surplus"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number and (name, value) != ("surplus", None):
                raise TrellisError(f"{name}={value!r} is not a number")
        if self.teachers != 0 and not self.weight > 0:
            raise TrellisError(
                f"weight={self.weight!r} lets teachers teach nothing: give a share of the loss "
                "above 0, or teachers=0"
            )
        check_teaching(self.weight, self.temperature)
        if not 0 <= self.drop < 1:
            raise TrellisError(f"drop={self.drop!r} is not a share from 0 to below 1")
        if not 0 <= self.agreement < math.inf:
            raise TrellisError(f"agreement={self.agreement!r} is not a finite number from 0 up")
        if self.agreement > 0 and self.augmentation is None:
            raise TrellisError(
                f"agreement={self.agreement!r} is between variants of a recording, and there are "
                "none without an augmentation: give one, or agreement=0.0"
            )
        check_method(self.method)
        if not 0 <= self.sensitivity <= 1:
            raise TrellisError(f"sensitivity={self.sensitivity!r} is not from 0 to 1")
        if self.surplus is not None and not 1 <= self.surplus < math.inf:
            raise TrellisError(
                f"surplus={self.surplus!r} is not a number of times from 1 up: give one such as "
                "30.0, or None to begin with the whole network"
            )

    @property
    def dense_networks(self) -> int:
        """How many dense networks are trained."""
        return max(self.teachers or 0, 1)

    def suited(self, recordings: int) -> Course:
        """As many steps for ``recordings`` as for 600: a network takes as long to learn from few.
        But no phase sees every recording fewer than 40 times, unless the recipe's own does.

        >>> [course_named("default").suited(n).recipe.epochs for n in (60, 600, 6000, 60000)]
        [4000, 800, 85, 40]
        """
        recipe = self.recipe
        factor = batch_count(_USUAL, recipe.batch) / batch_count(recordings, recipe.batch)
        epochs = {name: getattr(recipe, name) for name in _PHASES}
        for name in ("epochs", "prune_epochs", "tune_epochs"):
            least = min(_FEWEST, epochs[name])
            epochs[name] = max(round(epochs[name] * factor), least)
        often = recipe.prune_epochs / recipe.prune_every
        epochs["prune_every"] = max(round(epochs["prune_epochs"] / often), 1)
        return dataclasses.replace(self, recipe=dataclasses.replace(recipe, **epochs))

    def hundredth(self, total: int) -> int:
        """What a network with so many connections keeps to learn all, with units to spare."""
        return total // _PLENTY

    def teachers_at(self, kept: int, total: int) -> int:
        """How many teach a network that will keep so many of its ``total`` connections.

        >>> course = course_named("default")
        >>> course.teachers_at(2_139, 2_139_024), course.teachers_at(21_390, 2_139_024)
        (1, 0)
        """
        if self.teachers is not None:
            return self.teachers
        return 1 if kept < self.hundredth(total) else 0

    def waypoint(self, kept: int, total: int) -> int | None:
        """What a network keeps, pruned and tuned, before it is pruned on to so many of its
        ``total`` connections: a thousandth or else a hundredth, if it will keep less. Who is not
        taught, or is pruned at once, has none.

        >>> course = course_named("default")
        >>> [course.waypoint(kept, 2_139_024) for kept in (1_069, 2_139, 21_390)]
        [2139, 21390, None]
        >>> course_named("quick").waypoint(1_069, 2_139_024)
        """
        if self.teachers_at(kept, total) == 0 or self.curve == "one-shot":
            return None
        larger = [many for many in (total // _FEW, self.hundredth(total)) if many > kept]
        return larger[0] if larger else None

    def dropped(self, kept: int, total: int) -> float:
        """The share of hidden units that every step leaves out of a network that will keep so many
        of its ``total`` connections: all of ``drop`` from a hundredth up, none from a thousandth
        down.

        >>> course = course_named("default")
        >>> [round(course.dropped(kept, 2_139_024), 3) for kept in (213_902, 21_390, 6_417, 2_139)]
        [0.3, 0.3, 0.143, 0.0]
        """
        if kept >= self.hundredth(total):
            return self.drop
        return self.drop * max(1 + math.log10(kept * _PLENTY / total), 0)

    def agreement_at(self, kept: int, total: int, *, taught: bool = False) -> float:
        """The weight of a network's agreement with itself, if it will keep so many of its ``total``
        connections: none where less than a hundredth is kept, or where others teach.

        >>> course = course_named("default", agreement=1.0)
        >>> [course.agreement_at(kept, 2_139_024) for kept in (213_902, 21_390, 2_139)]
        [1.0, 1.0, 0.0]
        """
        return 0.0 if taught or kept < self.hundredth(total) else self.agreement

    def stops(self, *, narrow: bool) -> list[int]:
        """After how many epochs of pruning networks get more ``narrow``, if they do. The last is
        the end.

        >>> course = course_named("default")
        >>> course.stops(narrow=False), course.stops(narrow=True)
        ([600], [360, 420, 480, 540, 600])
        """
        tenths = _NARROWER if narrow else ()
        end, every = self.recipe.prune_epochs, self.recipe.prune_every
        return [*sorted({end // every * tenth // 10 * every for tenth in tenths}), end]

    def mirrored(self, share: float) -> Course:
        """With this share of the variants mirrored.

        >>> course_named("default").mirrored(0.5).augmentation.mirror
        0.5
        """
        if self.augmentation is None:
            return self
        augmentation = dataclasses.replace(self.augmentation, mirror=share)
        return dataclasses.replace(self, augmentation=augmentation)

    def times(self, length: float) -> Course:
        """Every phase ``length`` times as long.

        >>> course_named("quick").times(2.5).recipe.tune_epochs
        100
        """
        if not 0 < length <= LONGEST:
            raise TrellisError(
                f"length={length!r} is not a number above 0 and up to {LONGEST:,}, such as 0.5"
            )
        epochs = {name: max(1, round(getattr(self.recipe, name) * length)) for name in _PHASES}
        return dataclasses.replace(self, recipe=dataclasses.replace(self.recipe, **epochs))

    def to_dict(self) -> dict[str, Any]:
        """For a file: what JSON can hold."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        augmentation = None if self.augmentation is None else self.augmentation.to_dict()
        return own | {"recipe": self.recipe.to_dict(), "augmentation": augmentation}


_COMMON: dict[str, Any] = {"schedule": "cosine", "decay": 0.1, "smoothing": 0.1, "noise": 0.05}
_RATES: dict[str, Any] = {"rate": 3e-3, "prune_rate": 3e-3, "tune_rate": 1e-2}
_LONG: dict[str, Any] = {
    "epochs": 800,
    "prune_epochs": 600,
    "prune_every": 6,
    "tune_epochs": 200,
}
_SHORT: dict[str, Any] = {"epochs": 40, "prune_epochs": 40, "prune_every": 2, "tune_epochs": 40}
COURSES = {
    "default": Course(
        Recipe("shrink", **_LONG, batch=128, **_RATES, tune_smoothing=0.0, **_COMMON)
    ),
    "quick": Course(
        Recipe("shrink quick", **_SHORT, batch=100, **_RATES, **_COMMON),
        drop=0.0,
        teachers=0,
    ),
}


def options_for(layout: Layout) -> dict[str, Any]:
    """What is best for networks that will be small, as options of `Recogniser.fresh`: recordings
    as waves, in the body's frame, where the layout says which joints tell (of hands none does:
    which way they point may be what tells actions apart), all in one size, where there are bones to
    tell by; and hidden units that are absolute values.

    >>> from trellis.skeleton.data.layouts import FPHA, NW_UCLA
    >>> options_for(FPHA)
    {'basis': 'cosines', 'activation': 'abs', 'frame': 'camera', 'size': 'alike'}
    >>> options_for(NW_UCLA)["frame"]
    'body'
    """
    return {
        "basis": "cosines",
        "activation": "abs",
        "frame": "camera" if layout.body is None else "body",
        "size": "alike" if layout.bones else "recorded",
    }


def course_named(name: str, **changes: Any) -> Course:
    """The course called ``name``, with some settings changed.

    >>> course_named("quick", teachers=4).dense_networks
    4
    """
    if name not in COURSES:
        raise TrellisError(f"course {name!r} is unknown: it is one of {', '.join(COURSES)}")
    return dataclasses.replace(COURSES[name], **changes)
