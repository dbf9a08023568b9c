"""The phases of a course, for a stack of networks at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import TrellisError
from ...train import Forward, Recipe, Teachers, Training, Weights, forward_of, losses, run, stack
from ...train.dropping import Dropping
from ...train.schedule import Schedule
from ...train.shrinking import Chooses, Shrinking
from ..choosing import chooser
from ..fitting import feed_of, seeing
from ..gcn import GCN
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
        return self._trained(phase, weights, list(seeds), recipe=recipe).weights

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
        return Shrinking(schedule, tuple(targets), self.choose, self.course.sensitivity)

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
        course, total = self.course, self.connections
        tries = tuple(course.tries_at(target, total) for target in targets)
        which = [network for network, times in enumerate(tries) for _ in range(times)]
        shrinking = self.shrinking([targets[network] for network in which])
        seeds = [
            seed + i * (_APART // 7)
            for seed, times in zip(seeds, tries, strict=True)
            for i in range(times)
        ]
        weights = {key: weight[which] for key, weight in dense.items()}
        phases = [f"{phase} {name}".strip() for phase in ("pruning", "tuning")]
        shares = [course.dropped(target, total) for target in shrinking.targets]
        pruned = self._trained(
            phases[0], weights, [s + _APART // 2 for s in seeds], shares,
            teachers=teachers, shrinking=shrinking,
        )  # fmt: skip
        masks = {key: mask.clone() for key, mask in pruned.masks.items()}
        tuned = self._trained(
            phases[1], weights, [s + _APART // 3 for s in seeds], shares,
            teachers=teachers, masks=masks, tune=True,
        )  # fmt: skip
        found = losses(self.forward, tuned.weights, self.x, self.y)
        return Small(tuned.weights, masks, found, tries)

    def _trained(
        self, phase: str, weights: Weights, seeds: list[int], drop: Sequence[float] = (),
        recipe: Recipe | None = None, **options: Any,
    ) -> Training:  # fmt: skip
        dropping = None
        if any(drop):
            units = weights[_READS_UNITS].shape[-1]
            dropping = Dropping(_READS_UNITS, drop, units, seeds, self.device)
        training = Training(
            self.forward, weights, self.x, self.y, recipe or self.course.recipe, seeds=seeds,
            precision=self.precision,
            feed=feed_of(self.recogniser, self.course.augmentation, seeds, self.device),
            dropping=dropping,
            **options,
        )  # fmt: skip
        path = None
        if self.folder is not None:
            path = self.folder / f".{phase.replace(' ', '-')}.safetensors"
        watch = self.watch
        self.took[phase] = run(
            training,
            path,
            about=self.about | {"phase": phase, "course": self._course()},
            watch=None if watch is None else lambda each: watch(phase, each),
        )
        return training

    def _course(self) -> dict[str, Any]:
        """What a phase depends on. How many tries there are shows in its seeds, and the dense
        network is the same for any number of them."""
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
