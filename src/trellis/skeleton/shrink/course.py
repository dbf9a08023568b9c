"""Settings of gradual pruning for a skeleton recognizer: training, pruning and fine-tuning."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import TrellisError
from ...training import Recipe
from ...training.batches import batch_count
from ...training.shrink.course import WAYPOINTS, waypoints
from ..data.augmentation import Augmentation
from ..data.layouts import Layout
from ..model.gcn_stacks import check_method

_USUAL = 600  # recordings in the set that a recipe's epochs are meant for
_FEWEST = 40  # epochs of a phase, at least, however many recordings there are
_PLENTY, _ = WAYPOINTS  # a network that keeps 1 / _PLENTY of its connections learns everything
_NARROWER = (6, 7, 8, 9)  # tenths of the pruning phase at which empty filters are dropped
LONGEST = 1_000_000  # the largest factor that `Course.times` accepts
_PHASES = ("epochs", "prune_epochs", "prune_every", "tune_epochs")


@dataclass(frozen=True)
class Course:
    """Settings of the three phases: train a dense network, prune it gradually, fine-tune it.

    Sizes are relative. Below 1 % of the connections, the network is first pruned and fine-tuned at
    1 %. That network is the start of further pruning and the teacher of the smaller one. Below
    0.1 %, the network is pruned and fine-tuned at 0.1 % as well (`waypoint`).

    Args:
        recipe: Epochs, learning rates and batch size. The epochs are those of a set of 600
            recordings; `suited` converts them for sets of other sizes.
        augmentation: Random variants of the recordings; None trains on the recordings themselves.
        mirror: Whether to mirror half of the variants, if left and right carry no meaning in the
            recordings (`mirror_of`). An augmentation that mirrors already is not changed.
        dropout: Fraction of the hidden units that is dropped at each step of pruning and
            fine-tuning. Networks below 1 % drop fewer (`dropout_at`).
        distill: Whether networks below 1 % of the connections learn from the network at 1 %.
        method: What to keep: one of `trellis.skeleton.model.gcn_stacks.METHODS`.
        sensitivity: Exponent of the gradient in the saliency |weight| * gradient ** sensitivity.
        curve: Curve of the pruning schedule (`trellis.Schedule`).
        surplus: The first mask update keeps at most ``surplus`` times the budget. None follows the
            curve from the whole network.

    Raises:
        TrellisError: A setting is out of range.

    Example:
        >>> course_named("default").recipe.prune_epochs
        600
    """

    recipe: Recipe
    augmentation: Augmentation | None = field(default_factory=Augmentation)
    mirror: bool = True
    dropout: float = 0.3
    distill: bool = True
    method: str = "viterbi"
    sensitivity: float = 0.5
    curve: str = "geometric"
    surplus: float | None = 30.0

    def __post_init__(self) -> None:
        for name in ("mirror", "distill"):
            if not isinstance(getattr(self, name), bool):
                raise TrellisError(f"expected {name}=True or False, got {getattr(self, name)!r}")
        for name in ("dropout", "sensitivity", "surplus"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number and (name, value) != ("surplus", None):
                raise TrellisError(f"expected a number, got {name}={value!r}")
        if not 0 <= self.dropout < 1:
            raise TrellisError(f"expected 0 <= dropout < 1, got dropout={self.dropout!r}")
        check_method(self.method)
        if not 0 <= self.sensitivity <= 1:
            raise TrellisError(
                f"expected 0 <= sensitivity <= 1, got sensitivity={self.sensitivity!r}"
            )
        if self.surplus is not None and not 1 <= self.surplus < math.inf:
            raise TrellisError(
                f"expected a finite surplus of at least 1, got surplus={self.surplus!r}; give one "
                "such as 30.0, or None to prune from the whole network"
            )

    def suited(self, recordings: int) -> Course:
        """Return the course with as many steps on ``recordings`` as it has on 600.

        No phase has fewer than 40 epochs, unless the recipe itself has fewer.

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
        """Return the budget of a teacher: 1 % of ``total`` connections."""
        return total // _PLENTY

    def distills(self, kept: int, total: int) -> bool:
        """Return whether a network that will keep ``kept`` of ``total`` connections is distilled.

        >>> course = course_named("default")
        >>> course.distills(2_139, 2_139_024), course.distills(21_390, 2_139_024)
        (True, False)
        """
        return self.distill and kept < self.hundredth(total)

    def waypoint(self, kept: int, total: int) -> int | None:
        """Return the budget at which a network is fine-tuned before it is pruned to ``kept``.

        This is the smaller of 0.1 % and 1 % of ``total`` that is above ``kept``. It is None
        for larger networks, without distillation, and for one-shot pruning.

        >>> course = course_named("default")
        >>> [course.waypoint(kept, 2_139_024) for kept in (1_069, 2_139, 21_390)]
        [2139, 21390, None]
        >>> course_named("quick").waypoint(1_069, 2_139_024)
        """
        if not self.distills(kept, total) or self.curve == "one-shot":
            return None
        found = waypoints(kept, total)
        return found[-1] if found else None

    def dropout_at(self, kept: int, total: int) -> float:
        """Return the dropout rate of a network that will keep ``kept`` of ``total`` connections.

        This is ``dropout`` from 1 % up and 0 from 0.1 % down. In between it is linear in the
        logarithm of ``kept``.

        >>> course = course_named("default")
        >>> [round(course.dropout_at(k, 2_139_024), 3) for k in (213_902, 21_390, 6_417, 2_139)]
        [0.3, 0.3, 0.143, 0.0]
        """
        if kept >= self.hundredth(total):
            return self.dropout
        return self.dropout * max(1 + math.log10(kept * _PLENTY / total), 0)

    def stops(self, *, narrow: bool) -> list[int]:
        """Return the epochs of pruning at which empty filters are dropped; the last is the end.

        >>> course = course_named("default")
        >>> course.stops(narrow=False), course.stops(narrow=True)
        ([600], [360, 420, 480, 540, 600])
        """
        tenths = _NARROWER if narrow else ()
        end, every = self.recipe.prune_epochs, self.recipe.prune_every
        return [*sorted({end // every * tenth // 10 * every for tenth in tenths}), end]

    def mirrored(self, share: float) -> Course:
        """Return the course with this fraction of the variants mirrored.

        >>> course_named("default").mirrored(0.5).augmentation.mirror
        0.5
        """
        if self.augmentation is None:
            return self
        augmentation = dataclasses.replace(self.augmentation, mirror=share)
        return dataclasses.replace(self, augmentation=augmentation)

    def times(self, length: float) -> Course:
        """Return the course with every phase ``length`` times as long.

        >>> course_named("quick").times(2.5).recipe.tune_epochs
        100
        """
        if not 0 < length <= LONGEST:
            raise TrellisError(
                f"expected a length above 0 and up to {LONGEST:,}, got length={length!r}; give one "
                "such as 0.5"
            )
        epochs = {name: max(1, round(getattr(self.recipe, name) * length)) for name in _PHASES}
        return dataclasses.replace(self, recipe=dataclasses.replace(self.recipe, **epochs))

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as JSON can hold them."""
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
        dropout=0.0,
        distill=False,
    ),
}


def options_for(layout: Layout) -> dict[str, Any]:
    """Return the representation that suits small networks, as options of `Recognizer.fresh`.

    Recordings are represented by their discrete cosine transform, and hidden units by absolute
    values. Recordings are rotated into the body's frame if the layout names its joints. Hands are
    not: the direction in which a hand points may tell two actions apart. Skeletons are rescaled to
    one size if the layout has bones.

    Without a body's frame, filters slide over windows of the recording as well. On recordings of
    one body this gained nothing (docs/results/choosing.md). A filter then has two hidden units, so
    that 64 filters make about as many connections as the 128 of the paper.

    Args:
        layout: The skeleton's joints and bones.

    Example:
        >>> from trellis.skeleton.data.layouts import FPHA, NW_UCLA
        >>> for name, choice in options_for(FPHA).items():
        ...     print(name, choice, options_for(NW_UCLA)[name])
        kinds ('windows', 'coordinates') ('coordinates',)
        filters 64 128
        basis cosines cosines
        activation abs abs
        frame camera body
        size alike alike
    """
    kinds = ("windows", "coordinates") if layout.body is None else ("coordinates",)
    return {
        "kinds": kinds,
        "filters": filters_for(kinds),
        "basis": "cosines",
        "activation": "abs",
        "frame": "camera" if layout.body is None else "body",
        "size": "alike" if layout.bones else "recorded",
    }


def filters_for(kinds: Sequence[str]) -> int:
    """Return the default number of filters for channels of these kinds."""
    return 64 if "windows" in kinds else 128


def course_named(name: str, **changes: Any) -> Course:
    """Return the course called ``name``, with some settings changed.

    Args:
        name: "default" or "quick".
        **changes: Fields of `Course`.

    Raises:
        TrellisError: The course is unknown, or a setting is out of range.

    Example:
        >>> course_named("quick", distill=True).distill
        True
    """
    if name not in COURSES:
        raise TrellisError(f"unknown course {name!r}; known: {', '.join(COURSES)}")
    return dataclasses.replace(COURSES[name], **changes)
