"""The phases of a course, for a stack of networks at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import TrellisError
from ...training import Forward, Teachers, Training, Weights, forward_of, run, stack
from ...training.batches import Agreement
from ...training.dropout import Dropping
from ...training.schedule import Schedule
from ...training.stack_pruning import Chooses, Diverged, Shrinking
from ..data.representation import seeing
from ..model.fitting import feed_of
from ..model.gcn import GCN
from ..model.narrow import Inside, Narrow, narrowed
from ..model.recognizer import Recogniser
from ..model.stack_selection import PATHS, chooser
from .course import Course
from .mirror import Mirror, mirror_of

# Small networks, and what to say where there are none.


def diverged(phase: str) -> TrellisError:
    """What to say where numbers are no longer finite."""
    return TrellisError(
        f"training diverged (loss or weights are not finite) in the phase {phase!r}; look for "
        "recordings with wild coordinates (`trellis data info`), and for rates or weights of the "
        "loss that are far too large"
    )


class Small(NamedTuple):
    """A stack of networks, and their masks."""

    weights: Weights
    masks: Weights

    @property
    def kept(self) -> list[int]:
        """How many connections each network has.

        >>> Small({}, {"w": torch.tensor([[True, False], [True, True]])}).kept
        [1, 2]
        """
        each = [mask.flatten(1).sum(1) for mask in self.masks.values()]
        return [int(count) for count in torch.stack(each).sum(0)]

    def of(self, which: Sequence[int]) -> Small:
        """Some of the networks, in the order in which they are named.

        >>> small = Small({"w": torch.arange(3.0)}, {"w": torch.tensor([True, False, True])})
        >>> small.of([2, 1, 2])
        Small(weights={'w': tensor([2., 1., 2.])}, masks={'w': tensor([ True, False,  True])})
        """
        at = list(which)
        return Small(*({name: each[at] for name, each in part.items()} for part in self))

    @classmethod
    def joined(cls, parts: Sequence[Small]) -> Small:
        """The networks of several stacks, one after another."""
        return cls(*(
            {name: torch.cat([stack[name] for stack in stacks]) for name in stacks[0]}
            for stacks in zip(*parts, strict=True)
        ))  # fmt: skip


# One training of a course: where it begins, and of what, all of networks or what masks leave.


class Start(NamedTuple):
    """Where networks are when their pruning begins: ``kept`` connections of each, those of
    ``masks``, or all of them."""

    weights: Weights
    masks: Weights | None = None
    kept: int | None = None


class Kind(NamedTuple):
    """How a network is made: by how many ``teachers`` it is taught, how many connections the
    ``waypoint`` has from which it goes on (0 if that is the dense network), and the weight of its
    ``agreement`` with itself.

    >>> Kind(0).name, Kind(4).name, Kind(1, 2_139).name, Kind(0, agreement=1.0).name
    ('', 'taught', 'from 2139', 'agreeing')
    """

    teachers: int
    waypoint: int = 0
    agreement: float = 0.0

    @property
    def name(self) -> str:
        """What its phases are called, beside those of other kinds."""
        if self.waypoint:
            return f"from {self.waypoint}"
        if self.teachers:
            return "taught"
        return "agreeing" if self.agreement else ""


class Stage(NamedTuple):
    """A training, of networks as they are or of ``narrow`` ones."""

    training: Training
    narrow: Narrow | None

    def whole(self, stack: Mapping[str, Tensor]) -> Weights:
        """Its weights or masks, as those of networks as they are."""
        return dict(stack) if self.narrow is None else self.narrow.whole(stack)

    def taken(self, before: Stage, stack: Mapping[str, Tensor]) -> Weights:
        """Weights or masks of a stage ``before``, as this one has them."""
        found = before.whole(stack)
        return found if self.narrow is None else self.narrow.narrow(found)


Watch = Callable[[str, Training], None]  # a phase's name and where it is
_READS_UNITS = "dense.weight"  # of a GCN: classes are read from the units of its last block
_APART = 1_000_003  # between the seeds of dense networks; the phases of one take shares of it:
_FIRST, _TAUGHT, _FURTHER = (2, 3), (5, 9), (11, 13)  # of pruning and of tuning


class Maker:
    """Makes networks like a recogniser's, on recordings x (recordings, joints, chunks * 3), labels
    y: all of them at once, as a stack.

    The course is suited to how many recordings there are, and to whether left and right mean
    anything in them. With ``folder`` every phase keeps a checkpoint there, under its own name:
    whatever was done before is not done again, and the result is the same. ``about`` is what else
    must be the same for that. ``called`` comes before the name of every phase.
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
        called: str = "",
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
        self.folder, self.watch, self.called = folder, watch, called
        self._made: dict[tuple[int, ...], Small] = {}  # by what they keep, and their seeds
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

    @property
    def hundredth(self) -> int:
        """How many connections a network keeps that teaches: a hundredth, where that is enough."""
        return max(self.course.hundredth(self.connections), self.choose.least, 1)

    def train(self, seeds: Sequence[int]) -> Weights:
        """Dense networks, from the weights that their seeds start from."""
        weights = stack([self._fresh(seed) for seed in seeds])
        weights = {name: weight.to(self.device) for name, weight in weights.items()}
        training = self._stage(weights, seeds).training
        self._run("training", training)
        return training.weights

    def seeds(self, seed: int) -> list[int]:
        """The seeds of the dense networks for one small one: its own comes first."""
        return [seed + i * _APART for i in range(self.course.dense_networks)]

    def teachers(self, dense: Weights, seeds: Sequence[int]) -> Small:
        """What teaches: a network that keeps a hundredth, made of each of the dense ones. Made
        once."""
        return self._once(self.hundredth, seeds, "teachers", lambda: (Start(dense), None))

    def shrinking(self, targets: Sequence[int], begin: int | None = None) -> Shrinking:
        """When how much goes, of ``begin`` connections or all. A target that cannot be promised is
        refused here."""
        course, recipe = self.course, self.course.recipe
        when: dict[str, Any] = {"end": recipe.prune_epochs, "every": recipe.prune_every}
        if begin is not None:
            when["start"] = 1 - begin / self.connections
        if course.curve == "one-shot":
            when = {"begin": recipe.prune_epochs}
        schedule = Schedule(course.curve, **when)
        return Shrinking(schedule, tuple(targets), self.choose, course.sensitivity, course.surplus)

    def shrink(
        self,
        dense: Weights,
        seeds: Sequence[int],
        targets: Sequence[int],
        of: Sequence[int] | None = None,
        name: str = "",
    ) -> Small:
        """Networks pruned to ``targets[i]`` connections and tuned, network i made of the dense
        network ``of[i]`` (the first).

        ``seeds`` are those of the stack of dense networks. Who has teachers is taught by what was
        made of its own dense network, and of those that follow it. Who keeps less than its teachers
        do goes on from the first of them, by the course's waypoints.
        """
        self.shrinking(targets)  # refused before anybody has waited
        of = [0] * len(targets) if of is None else of
        kinds = [self._kind(target) for target in targets]
        found: list[Small] = []
        order: list[int] = []
        for kind in sorted(set(kinds)):
            mine = [i for i, each in enumerate(kinds) if each == kind]
            which, wanted = [of[i] for i in mine], [targets[i] for i in mine]
            start, teachers = self._begun(dense, seeds, which, kind)
            own = kind.name if len(set(kinds)) > 1 else ""
            theirs = [seeds[i] for i in which]
            found.append(self._shrunk(f"{name} {own}", start, wanted, theirs, teachers))
            order += mine
        back = sorted(range(len(order)), key=order.__getitem__)
        return found[0] if len(found) == 1 else Small.joined(found).of(back)

    def _kind(self, target: int) -> Kind:
        course, total = self.course, self.connections
        teachers = course.teachers_at(target, total)
        agreement = course.agreement_at(target, total, taught=teachers > 0)
        return Kind(teachers, course.waypoint(target, total) or 0, agreement)

    def _begun(
        self, dense: Weights, seeds: Sequence[int], which: Sequence[int], kind: Kind
    ) -> tuple[Start, Teachers | None]:
        """Where networks of these dense ones begin, and their teachers."""
        if kind.teachers > len(seeds):
            raise TrellisError(
                f"teachers={kind.teachers} need as many dense networks to be made of, not "
                f"{len(seeds)}"
            )
        if kind.waypoint:
            first = self._on_the_way(dense, seeds, kind.waypoint).of(which)
            start = Start(first.weights, first.masks, kind.waypoint)
        else:
            start = Start({name: weight[which] for name, weight in dense.items()})
        if kind.teachers == 0:
            return start, None
        theirs = self.teachers(dense, seeds).of(
            [(i + j) % len(seeds) for i in which for j in range(kind.teachers)]
        )
        narrow = self._narrow(theirs.masks)
        weights = theirs.weights if narrow is None else narrow.narrow(theirs.weights)
        said, course = self._forward(narrow), self.course
        return start, Teachers(said, weights, course.weight, course.temperature, own=True)

    def _on_the_way(self, dense: Weights, seeds: Sequence[int], kept: int) -> Small:
        """What is made of each of the dense networks at a waypoint."""
        if kept == self.hundredth:
            return self.teachers(dense, seeds)
        everyone = range(len(seeds))
        begun = partial(self._begun, dense, seeds, everyone, self._kind(kept))
        return self._once(kept, seeds, f"to {kept}", begun)

    def _once(
        self, kept: int, seeds: Sequence[int], name: str,
        begun: Callable[[], tuple[Start, Teachers | None]],
    ) -> Small:  # fmt: skip
        """Networks that others go on or learn from: one for each seed, made once."""
        key = kept, *seeds
        if key not in self._made:
            start, teachers = begun()
            self._made[key] = self._shrunk(name, start, [kept] * len(seeds), seeds, teachers)
        return self._made[key]

    def _shrunk(
        self, name: str, start: Start, targets: Sequence[int], seeds: Sequence[int],
        teachers: Teachers | None = None,
    ) -> Small:  # fmt: skip
        """Pruned and tuned. Who is taught or goes on sees other variants than were seen before."""
        phases = [" ".join([phase, *name.split()]) for phase in ("pruning", "tuning")]
        further = start.kept is not None and start.kept < self.hundredth
        apart = _FURTHER if further else _FIRST if teachers is None else _TAUGHT
        pruning, tuning = ([seed + _APART // share for seed in seeds] for share in apart)
        pruned = self._pruned(phases[0], start, targets, pruning, teachers)
        weights, masks = (
            pruned.whole(each) for each in (pruned.training.weights, pruned.training.masks)
        )
        last = self._stage(
            weights, tuning, targets, self._narrow(masks),
            masks=masks, tune=True, teachers=teachers,
        )  # fmt: skip
        self._run(phases[1], last.training)
        return Small(last.whole(last.training.weights), masks)

    def _pruned(
        self, phase: str, start: Start, targets: Sequence[int], seeds: Sequence[int],
        teachers: Teachers | None,
    ) -> Stage:  # fmt: skip
        """The end of pruning. A CPU leaves out on the way what is no longer used."""
        narrows = self.device.type == "cpu" and self.course.method in PATHS
        shrinking = self.shrinking(targets, start.kept)
        stage = self._stage(
            {key: weight.clone() for key, weight in start.weights.items()}, seeds, targets,
            self._narrow(start.masks) if narrows else None,
            masks=start.masks, shrinking=shrinking, teachers=teachers,
        )  # fmt: skip
        first, *others = self.course.stops(narrow=narrows)
        self._run(phase, stage.training, first)
        for number, stop in enumerate(others, 1):
            before = stage
            stage = self._stage(
                before.whole(before.training.weights), seeds, targets,
                self._narrow(before.whole(before.training.masks)),
                shrinking=shrinking, teachers=teachers,
            )  # fmt: skip
            stage.training.follow(before.training, partial(stage.taken, before))
            self._run(phase, stage.training, stop, number)
        return stage

    def _narrow(self, masks: Mapping[str, Tensor] | None) -> Narrow | None:
        """What masks leave to train, where there are any, if that is not all."""
        return None if masks is None else narrowed(self.recogniser.model, masks, self.device)

    def _forward(self, narrow: Narrow | None) -> Forward:
        if narrow is None:
            return self.forward
        return seeing(self.recogniser.channels, narrow.forward())

    def _stage(
        self, weights: Weights, seeds: Sequence[int], targets: Sequence[int] = (),
        narrow: Narrow | None = None, *, masks: Mapping[str, Tensor] | None = None,
        shrinking: Shrinking | None = None, teachers: Teachers | None = None, **options: Any,
    ) -> Stage:  # fmt: skip
        """A training of the ``narrow`` part of whole networks; those that will keep ``targets`` do
        without some of their units at each step, and agree with themselves, all of them or none."""
        recogniser, course = self.recogniser, self.course
        drop = [course.dropped(target, self.connections) for target in targets]
        units = weights[_READS_UNITS].shape[-1]
        if narrow is not None:
            weights = narrow.narrow(weights)
            masks = None if masks is None else narrow.narrow(masks)
            if shrinking is not None:
                choose = chooser(narrow.alike(), course.method)
                shrinking = replace(shrinking, choose=Inside(self.choose.sizes, choose))
        dropping = None
        if any(drop):
            read = None if narrow is None else narrow.units
            dropping = Dropping(_READS_UNITS, drop, units, seeds, self.device, read)
        agreement = 0.0
        if targets:
            agreement = course.agreement_at(
                min(targets), self.connections, taught=teachers is not None
            )
        training = Training(
            self._forward(narrow), weights, self.x, self.y, course.recipe, seeds=seeds,
            masks=masks, shrinking=shrinking, precision=self.precision,
            feed=feed_of(recogniser, course.augmentation, seeds, self.device),
            dropping=dropping, teachers=teachers,
            agreement=Agreement(agreement) if agreement else None, **options,
        )  # fmt: skip
        return Stage(training, narrow)

    def _run(self, phase: str, training: Training, until: int | None = None, part: int = 0) -> None:
        """Train, and keep a checkpoint of each ``part`` of a phase."""
        path = None
        phase = self.called + phase
        if self.folder is not None:
            own = f".{part}" if part else ""
            path = self.folder / f".{re.sub('[ :]+', '-', phase)}{own}.safetensors"
        watch = self.watch
        try:
            seconds = run(
                training,
                path,
                about=self.about | {"phase": phase, "course": self.course.to_dict()},
                until=until,
                watch=None if watch is None else lambda each: watch(phase, each),
            )
        except Diverged:
            raise diverged(phase) from None
        self.took[phase] = self.took.get(phase, 0.0) + seconds

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
