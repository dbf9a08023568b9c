"""The phases of a course, for a stack of networks at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import TrellisError
from ...train import Forward, Recipe, Teachers, Training, Weights, forward_of, losses, run, stack
from ...train.dropping import Dropping
from ...train.schedule import Schedule
from ...train.shrinking import Chooses, Shrinking
from ..choosing import PATHS, chooser
from ..fitting import feed_of, seeing
from ..gcn import GCN
from ..narrow import Inside, Narrow, narrowed
from ..recogniser import Recogniser
from .course import Course
from .mirror import Mirror, mirror_of

Watch = Callable[[str, Training], None]  # a phase's name and where it is
_READS_UNITS = "dense.weight"  # of a GCN: classes are read from the units of its last block
_APART = 1_000_003  # between seeds: of a network's phases and tries, and of teachers


class Small(NamedTuple):
    """A stack of tries at networks, their masks, and their losses on the recordings as they are
    (stack,). The tries at one network follow one another, ``tries[i]`` of them at network i."""

    weights: Weights
    masks: dict[str, Tensor]
    losses: Tensor
    tries: tuple[int, ...]

    def best(self) -> Small:
        """Of the tries at each network the one with the least loss, the first where many have.

        >>> losses = torch.tensor([3.0, 2.0, torch.nan, 5.0, 4.0])
        >>> Small({"w": torch.arange(5.0)}, {}, losses, (2, 1, 2)).best().weights["w"]
        tensor([1., 2., 4.])
        """
        each = self.losses.nan_to_num(nan=torch.inf).split(self.tries)
        return self._chosen([int(losses.argmin()) for losses in each])

    def first(self) -> Small:
        """The first try at each network."""
        return self._chosen([0] * len(self.tries))

    def _chosen(self, which: Sequence[int]) -> Small:
        starts = [sum(self.tries[:i]) for i in range(len(self.tries))]
        at = [start + own for start, own in zip(starts, which, strict=True)]
        weights, masks = (
            {name: tensor[at] for name, tensor in part.items()}
            for part in (self.weights, self.masks)
        )
        return Small(weights, masks, self.losses[at], (1,) * len(at))


class Stage(NamedTuple):
    """A training, of networks as they are or of ``narrow`` ones."""

    training: Training
    narrow: Narrow | None

    def whole(self, stack: Mapping[str, Tensor], which: Sequence[int] | None = None) -> Weights:
        """Its weights or masks, as those of networks as they are; of some of them, if so told."""
        found = dict(stack) if self.narrow is None else self.narrow.whole(stack)
        return found if which is None else {name: each[which] for name, each in found.items()}

    def taken(self, before: Stage, which: Sequence[int], stack: Mapping[str, Tensor]) -> Weights:
        """Weights or masks of a stage ``before``, as this one has them."""
        found = before.whole(stack, which)
        return found if self.narrow is None else self.narrow.narrow(found)


class Maker:
    """Makes networks like a recogniser's, on recordings x (recordings, joints, chunks * 3), labels
    y: all of them at once, as a stack.

    The course is suited to how many recordings there are, and to whether left and right mean
    anything in them. With ``folder`` every phase keeps a checkpoint there, under its own name:
    whatever was done before is not done again, and the result is the same. ``about`` is what else
    must be the same for that.
    """

    def __init__(
        self,
        recogniser: Recogniser,
        x: Tensor,
        y: Tensor,
        course: Course,
        *,
        device: torch.device | str = "cpu",
        precision: str = "fp32",
        folder: Path | None = None,
        about: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.recogniser, self.course = recogniser, course.suited(len(x))
        self.mirror: Mirror | None = None
        variants = course.augmentation
        if course.mirror and variants is not None and variants.mirror == 0:
            self.mirror = mirror_of(
                x, y, recogniser.layout, recogniser.classes, variants.left_right
            )
            self.course = self.course.mirrored(self.mirror.share)
        self.device, self.precision = torch.device(device), precision
        self.x, self.y = x.to(self.device), y.to(self.device)
        self.folder, self.watch = folder, watch
        self.took: dict[str, float] = {}  # seconds, by phase
        self.about = dict(about or {}) | {
            "architecture": recogniser.model.described(),
            "channels": list(recogniser.kinds),
            "basis": recogniser.basis,
            "normalisation": recogniser.normalisation.to_dict(),
        }
        self.connections = sum(self.choose.sizes.values())

    @cached_property
    def choose(self) -> Chooses:
        return chooser(self.recogniser.model, self.course.method)

    @cached_property
    def forward(self) -> Forward:
        model = self.recogniser.model.to(self.device)
        return seeing(self.recogniser.channels, forward_of(model))

    def train(self, seeds: Sequence[int], phase: str = "training") -> Weights:
        """Dense networks, from the weights that their seeds start from."""
        weights = stack([self._fresh(seed) for seed in seeds])
        weights = {name: weight.to(self.device) for name, weight in weights.items()}
        recipe = self.course.recipe
        if self.course.teachers:
            recipe = replace(recipe, smoothing=0.0)
        training = self._stage(weights, seeds, recipe=recipe).training
        self.took[phase] = self._run(phase, training)
        return training.weights

    def teacher_seeds(self, seed: int) -> list[int]:
        """The seeds of the dense networks for one small one: its own comes first."""
        return [seed + i * _APART for i in range(self.course.dense_networks)]

    def teachers(self, weights: Weights) -> Teachers | None:
        """Trained networks as teachers, if the course has any."""
        course = self.course
        if course.teachers == 0:
            return None
        return Teachers(self.forward, weights, course.weight, course.temperature)

    def shrinking(self, targets: Sequence[int]) -> Shrinking:
        """When how much goes. A target that cannot be promised is refused here."""
        recipe = self.course.recipe
        when: dict[str, int] = {"end": recipe.prune_epochs, "every": recipe.prune_every}
        if self.course.curve == "one-shot":
            when = {"begin": recipe.prune_epochs}
        schedule = Schedule(self.course.curve, **when)
        course = self.course
        return Shrinking(schedule, tuple(targets), self.choose, course.sensitivity, course.surplus)

    def shrink(
        self,
        dense: Weights,
        targets: Sequence[int],
        seeds: Sequence[int],
        teachers: Teachers | None,
        name: str = "",
    ) -> Small:
        """Networks pruned to ``targets[i]`` connections from a stack of dense ones, and tuned: all
        the course's tries at each (`Small.best`)."""
        tries = tuple(self.course.tries_at(target, self.connections) for target in targets)
        phases = [f"{phase} {name}".strip() for phase in ("pruning", "tuning")]
        pruned = self._pruned(phases[0], dense, targets, seeds, tries, teachers)
        weights, masks = (
            pruned.whole(each) for each in (pruned.training.weights, pruned.training.masks)
        )
        tuning = self._stage(
            weights, _of_tries(seeds, tries, _APART // 3), _repeated(targets, tries),
            narrowed(self.recogniser.model, masks, self.device),
            masks=masks, teachers=teachers, tune=True,
        )  # fmt: skip
        self.took[phases[1]] = self._run(phases[1], tuning.training, part=1)
        tuned = tuning.whole(tuning.training.weights)
        return Small(tuned, masks, losses(self.forward, tuned, self.x, self.y), tries)

    def _pruned(
        self, phase: str, dense: Weights, targets: Sequence[int], seeds: Sequence[int],
        tries: Sequence[int], teachers: Teachers | None,
    ) -> Stage:  # fmt: skip
        """The end of pruning, for ``tries[i]`` tries at network i, which are one network until they
        part. A CPU leaves out on the way what is no longer used."""
        once = [1] * len(targets)
        stage = self._stage(
            {key: weight.clone() for key, weight in dense.items()},
            _of_tries(seeds, once, _APART // 2), targets,
            shrinking=self.shrinking(targets), teachers=teachers,
        )  # fmt: skip
        narrows = self.device.type == "cpu" and self.course.method in PATHS
        first, *others = self.course.stops(narrow=narrows)
        self.took[phase] = self._run(phase, stage.training, first)
        which = _repeated(range(len(targets)), tries)
        for number, stop in enumerate(others, 1):
            before = stage
            masks = before.whole(before.training.masks, which)
            stage = self._stage(
                before.whole(before.training.weights, which),
                _of_tries(seeds, tries, _APART // 2), _repeated(targets, tries),
                narrowed(self.recogniser.model, masks, self.device) if narrows else None,
                shrinking=self.shrinking(_repeated(targets, tries)), teachers=teachers,
            )  # fmt: skip
            stage.training.follow(before.training, which, partial(stage.taken, before, which))
            self.took[phase] += self._run(phase, stage.training, stop, number)
            which = list(range(len(which)))
        return stage

    def _stage(
        self, weights: Weights, seeds: Sequence[int], targets: Sequence[int] = (),
        narrow: Narrow | None = None, *, recipe: Recipe | None = None,
        masks: Mapping[str, Tensor] | None = None, shrinking: Shrinking | None = None,
        **options: Any,
    ) -> Stage:  # fmt: skip
        """A training of the ``narrow`` part of whole networks; those that will keep ``targets`` do
        without some of their units at each step."""
        forward, recogniser, course = self.forward, self.recogniser, self.course
        drop = [course.dropped(target, self.connections) for target in targets]
        units = weights[_READS_UNITS].shape[-1]
        if narrow is not None:
            weights = narrow.narrow(weights)
            masks = None if masks is None else narrow.narrow(masks)
            forward = seeing(recogniser.channels, narrow.forward())
            if shrinking is not None:
                choose = chooser(narrow.alike(), course.method)
                shrinking = replace(shrinking, choose=Inside(self.choose.sizes, choose))
        dropping = None
        if any(drop):
            read = None if narrow is None else narrow.units
            dropping = Dropping(_READS_UNITS, drop, units, seeds, self.device, read)
        training = Training(
            forward, weights, self.x, self.y, recipe or course.recipe, seeds=seeds,
            masks=masks, shrinking=shrinking, precision=self.precision,
            feed=feed_of(recogniser, course.augmentation, seeds, self.device),
            dropping=dropping, **options,
        )  # fmt: skip
        return Stage(training, narrow)

    def _run(
        self, phase: str, training: Training, until: int | None = None, part: int = 0
    ) -> float:
        """Train, and keep checkpoints: up to where tries part, the same for any number of them.
        Returns how many seconds it took."""
        path = None
        if self.folder is not None:
            own = f".{part}.{len(training.seeds)}" if part else ""
            path = self.folder / f".{phase.replace(' ', '-')}{own}.safetensors"
        watch = self.watch
        return run(
            training,
            path,
            about=self.about | {"phase": phase, "course": self._course()},
            until=until,
            watch=None if watch is None else lambda each: watch(phase, each),
        )

    def _course(self) -> dict[str, Any]:
        """What a phase depends on. How many tries there are shows in its seeds, and what comes
        before they part is the same for any number of them."""
        found = self.course.to_dict()
        del found["tries"]
        return found

    def _fresh(self, seed: int) -> GCN:
        """The network that a seed starts from: the same on every device."""
        given = self.recogniser.model
        if given.described()["limited"] or given.described()["fixed"]:
            raise TrellisError(
                "attention that is limited to a skeleton's bones is not made small yet: train it "
                "with `--bones free` or start"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return GCN(**given.sizes)


def _repeated(each: Sequence[int], tries: Sequence[int]) -> list[int]:
    return [one for one, times in zip(each, tries, strict=True) for _ in range(times)]


def _of_tries(seeds: Sequence[int], tries: Sequence[int], phase: int) -> list[int]:
    """The seeds of all tries in a phase."""
    return [
        seed + phase + i * (_APART // 7)
        for seed, times in zip(seeds, tries, strict=True)
        for i in range(times)
    ]
