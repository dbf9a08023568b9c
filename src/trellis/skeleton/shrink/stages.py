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
from ...graph.trellis import trace
from ...methods.budget import count
from ...methods.nested import chain, share
from ...saving.nested import Nested
from ...training import Forward, Teachers, Training, Weights, forward_of, run, stack
from ...training.batches import Dropout
from ...training.schedule import Schedule
from ...training.shrink.course import waypoints
from ...training.stack_nested import NestedTraining, Size
from ...training.stack_pruning import Diverged, GradualPruning, Selector
from ..data.preparation import reading_channels
from ..model.fitting import feed_of
from ..model.gcn import GCN
from ..model.gcn_stacks import PATHS, Inside, Narrow, narrowed, selector
from ..model.recognizer import Recognizer
from .course import Course
from .mirror import Mirror, mirror_of

_TEACHER_WEIGHT = 0.8  # share of the loss that comes from the teacher
_TEMPERATURE = 2.0  # of the teacher's and the student's softmax


def diverged(phase: str) -> TrellisError:
    """Return the error for a loss or a weight that is not finite."""
    return TrellisError(
        f"training diverged (loss or weights are not finite) in the phase {phase!r}; look for "
        "recordings with wild coordinates (`trellis data info`) and for learning rates that are "
        "far too large"
    )


class Small(NamedTuple):
    """A stack of pruned networks and their masks."""

    weights: Weights
    masks: Weights

    @property
    def kept(self) -> list[int]:
        """The number of connections of each network.

        >>> Small({}, {"w": torch.tensor([[True, False], [True, True]])}).kept
        [1, 2]
        """
        each = [mask.flatten(1).sum(1) for mask in self.masks.values()]
        return [int(count) for count in torch.stack(each).sum(0)]

    def of(self, which: Sequence[int]) -> Small:
        """Return the networks with these indices, in this order.

        >>> small = Small({"w": torch.arange(3.0)}, {"w": torch.tensor([True, False, True])})
        >>> small.of([2, 1, 2])
        Small(weights={'w': tensor([2., 1., 2.])}, masks={'w': tensor([ True, False,  True])})
        """
        at = list(which)
        return Small(*({name: each[at] for name, each in part.items()} for part in self))

    @classmethod
    def joined(cls, parts: Sequence[Small]) -> Small:
        """Return the networks of several stacks in one stack."""
        return cls(*(
            {name: torch.cat([stack[name] for stack in stacks]) for name in stacks[0]}
            for stacks in zip(*parts, strict=True)
        ))  # fmt: skip


class Start(NamedTuple):
    """Networks at the beginning of pruning: ``masks`` keep ``kept`` connections of each.

    Without masks, all connections are kept.
    """

    weights: Weights
    masks: Weights | None = None
    kept: int | None = None


class Kind(NamedTuple):
    """How a network is made: whether it is distilled, and the budget that it is pruned from.

    A ``waypoint`` of 0 is the dense network.

    >>> Kind(False).name, Kind(True).name, Kind(True, 2_139).name
    ('', 'distilled', 'from 2139')
    """

    distilled: bool
    waypoint: int = 0

    @property
    def name(self) -> str:
        """The suffix of its phases' names where networks of several kinds are made."""
        if self.waypoint:
            return f"from {self.waypoint}"
        return "distilled" if self.distilled else ""


class Stage(NamedTuple):
    """A training of whole networks, or of the parts of them in ``narrow``."""

    training: Training
    narrow: Narrow | None

    def whole(self, stack: Mapping[str, Tensor]) -> Weights:
        """Return weights or masks of this stage in the shapes of whole networks."""
        return dict(stack) if self.narrow is None else self.narrow.whole(stack)

    def taken(self, before: Stage, stack: Mapping[str, Tensor]) -> Weights:
        """Return weights or masks of the stage ``before`` in the shapes of this stage."""
        found = before.whole(stack)
        return found if self.narrow is None else self.narrow.narrow(found)


Watch = Callable[[str, Training], None]  # called with a phase's name and its training
_READS_UNITS = "dense.weight"  # the GCN's parameter that reads the units of the last block
# Every phase has a seed of its own: the network's seed plus _APART divided by one of these numbers
# (pruning, fine-tuning).
_APART = 1_000_003
_MOST_PARTS = 100  # of a phase
_FIRST, _DISTILLED, _FURTHER, _NESTED = (2, 3), (5, 9), (11, 13), (17, 18)
_TOGETHER = 4  # epochs that train nested networks together, in epochs of fine-tuning


class Maker:
    """Train, prune and fine-tune a stack of networks like a recognizer's.

    The course is converted to the number of recordings (`Course.suited`). Variants are mirrored if
    left and right carry no meaning in the recordings (`mirror_of`).

    Args:
        recognizer: The untrained recognizer whose network is copied.
        x: Training recordings (recordings, joints, chunks * 3), normalized.
        y: Their labels (recordings,).
        course: The settings.
        device: Where to train.
        precision: "fp32", "tf32" or "bf16".
        folder: An existing folder for checkpoints, one per phase. A maker with the same arguments
            then continues where another one stopped, with the same result.
        about: Further settings that must be the same in order to continue.
        watch: Called after every epoch with the phase's name and its training.
        called: Prefix of the phases' names.
        first: A network whose weights training starts from, where they have the same shape.
    """

    def __init__(
        self,
        recognizer: Recognizer,
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
        first: GCN | None = None,
    ) -> None:
        self.recognizer, self.course = recognizer, course.suited(len(x))
        self.asked, self.given = course, dict(about or {})
        self.mirror: Mirror | None = None
        variants = course.augmentation
        if course.mirror and variants is not None and variants.mirror == 0:
            self.mirror = mirror_of(
                x, y, recognizer.layout, recognizer.classes, variants.left_right
            )
            self.course = self.course.mirrored(self.mirror.share)
        self.device, self.precision = torch.device(device), precision
        self.x, self.y = x.to(self.device), y.to(self.device)
        self.folder, self.watch, self.called, self.first = folder, watch, called, first
        self._made: dict[tuple[int, ...], Small] = {}  # by what they keep, and their seeds
        self.took: dict[str, float] = {}  # seconds, by phase
        self.about = dict(about or {}) | {
            "architecture": recognizer.model.described(),
            "channels": list(recognizer.kinds),
            "basis": recognizer.basis,
            "normalisation": recognizer.normalization.to_dict(),  # as stored checkpoints spell it
        }
        self.connections = sum(self.select.sizes.values())

    @cached_property
    def select(self) -> Selector:
        """The rule that selects which connections to keep."""
        return selector(self.recognizer.model, self.course.method)

    @cached_property
    def forward(self) -> Forward:
        """The function of a stack of networks, from normalized recordings to logits."""
        model = self.recognizer.model.to(self.device)
        return reading_channels(self.recognizer.channels, forward_of(model))

    @property
    def hundredth(self) -> int:
        """The budget of a teacher: 1 % of the connections, but enough to reach every class."""
        return max(self.course.hundredth(self.connections), self.select.least, 1)

    def train(self, seeds: Sequence[int]) -> Weights:
        """Return trained dense networks, one per seed."""
        weights = stack([self._fresh(seed) for seed in seeds])
        weights = {name: weight.to(self.device) for name, weight in weights.items()}
        training = self._stage(weights, seeds).training
        self._run("training", training)
        return training.weights

    def teachers(self, dense: Weights, seeds: Sequence[int]) -> Small:
        """Return the networks at 1 %, one made of each dense network; they are made once."""
        return self._once(self.hundredth, seeds, "teacher", lambda: (Start(dense), None))

    def pruning(self, targets: Sequence[int], begin: int | None = None) -> GradualPruning:
        """Return the schedule from ``begin`` connections (None: all) to ``targets``.

        Raises:
            TrellisError: A target may be too small for a path to every class.
        """
        course, recipe = self.course, self.course.recipe
        when: dict[str, Any] = {"end": recipe.prune_epochs, "every": recipe.prune_every}
        if begin is not None:
            when["initial_sparsity"] = 1 - begin / self.connections
        if course.curve == "one-shot":
            when = {"begin": recipe.prune_epochs}
        schedule = Schedule(course.curve, **when)
        return GradualPruning(
            schedule, tuple(targets), self.select, course.sensitivity, course.surplus
        )

    def shrink(
        self,
        dense: Weights,
        seeds: Sequence[int],
        targets: Sequence[int],
        of: Sequence[int] | None = None,
        name: str = "",
    ) -> Small:
        """Return networks pruned to ``targets[i]`` connections and fine-tuned.

        Networks below 1 % of the connections are pruned from the network at 1 % or 0.1 % that was
        made of the same dense network (`Course.waypoint`), and learn from the one at 1 %.

        Args:
            dense: A stack of dense networks.
            seeds: The seeds of the dense networks.
            targets: The budgets.
            of: Indices of the dense networks that the small ones are made of (default: the first).
            name: Suffix of the phases' names.
        """
        self.pruning(targets)  # raises before anything is trained
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

    def nested(self, dense: Weights, seed: int, budgets: Sequence[int]) -> Nested:
        """Return nested networks that share their weights, made of one dense network.

        The network is pruned and fine-tuned from one size to the next. Then all are trained
        together (`trellis.training.stack_nested`). A shared weight begins with that of the smallest
        network that has it.

        Args:
            dense: A stack of one dense network.
            seed: Its seed.
            budgets: The budgets, largest first.
        """
        self.pruning(budgets)  # raises before anything is trained
        total, smallest = self.connections, budgets[-1]
        ways = [] if self.course.waypoint(smallest, total) is None else waypoints(smallest, total)
        stops: dict[int, Small] = {}
        start, teachers = Start(dense), None
        for number, stop in enumerate(sorted({*ways, *budgets}, reverse=True)):
            apart = _NESTED[0] + 2 * number, _NESTED[1] + 2 * number
            distilled = teachers if self.course.distills(stop, total) else None
            small = self._shrunk(f"nested {stop}", start, [stop], [seed], distilled, apart)
            if stop >= self.course.hundredth(total):
                teachers = self._taught_by(small)
            stops[stop], start = small, Start(small.weights, small.masks, stop)
        return self._together([stops[budget] for budget in budgets], seed, budgets)

    def _together(self, asked: Sequence[Small], seed: int, budgets: Sequence[int]) -> Nested:
        """Train networks together, each of which is inside the one before."""
        largest = asked[0]
        weights = {
            name: weight.clone() if name in largest.masks
            else torch.cat([each.weights[name] for each in asked])
            for name, weight in largest.weights.items()
        }  # fmt: skip
        for small in asked[1:]:
            for name, mask in small.masks.items():
                weights[name] = torch.where(mask, small.weights[name], weights[name])
        model = GCN(**self.recognizer.model.sizes)
        net = trace(model, torch.zeros(1, model.sizes["nodes"], model.sizes["channels"]))
        plain = {name: weights[name][0].cpu() for name in largest.masks}
        stops = [{name: mask[0].cpu() for name, mask in each.masks.items()} for each in asked]
        kept = chain(net, plain, stops)
        counts = [count(each) for each in stops]
        sizes = [self._size(masks, counts, seed, weights) for masks in kept]
        course, recipe = self.course, self.course.recipe
        training = NestedTraining(
            sizes, weights, largest.masks, self.x, self.y,
            replace(recipe, tune_epochs=_TOGETHER * recipe.tune_epochs), seed=seed + _APART // 15,
            feed=feed_of(self.recognizer, course.augmentation, [seed + _APART // 15], self.device),
            precision=self.precision, taught=_TEACHER_WEIGHT, temperature=_TEMPERATURE,
        )  # fmt: skip
        self._run("tuning together", training)
        found = {name: weight.cpu() for name, weight in training.weights.items()}
        own = {name: weight for name, weight in found.items() if name not in largest.masks}
        others = [
            {
                name: torch.lerp(value[size.stop], value[min(size.stop + 1, len(value) - 1)],
                                 size.share)
                for name, value in own.items()
            }
            for size in sizes
        ]  # fmt: skip
        shared = {name: found[name][0] for name in largest.masks}
        return Nested(shared, kept, others, tuple(budgets), net.total, net.specs)

    def _size(
        self, masks: Mapping[str, Tensor], counts: Sequence[int], seed: int, weights: Weights
    ) -> Size:
        """Return one of the networks that are trained together; on a CPU, its used parts."""
        kept = count(masks)
        stop = max(i for i, each in enumerate(counts) if each >= kept)
        between = 0.0 if kept == counts[stop] else share(counts[stop + 1], counts[stop], kept)
        stack = {name: mask[None].to(self.device) for name, mask in masks.items()}
        narrow = self._narrow(stack)
        rate, dropout = self.course.dropout_at(kept, self.connections), None
        if rate:
            read = None if narrow is None else narrow.units
            units = weights[_READS_UNITS].shape[-1]
            dropout = Dropout(_READS_UNITS, [rate], units, [seed], self.device, read)
        forward = self._forward(narrow)
        if narrow is None:
            return Size(stack, forward, dict, stop, between, dropout)
        return Size(narrow.narrow(stack), forward, narrow.narrow, stop, between, dropout)

    def begin(self, dense: Weights, seeds: Sequence[int], targets: Sequence[int]) -> None:
        """Make the networks that those with ``targets`` connections start or learn from."""
        for kind in sorted({self._kind(target) for target in targets}):
            self._begun(dense, seeds, range(len(seeds)), kind)

    def file(self, phase: str, part: int = 0) -> Path:
        """Return the checkpoint of a phase (without the prefix), or of a part of it."""
        assert self.folder is not None
        own = f".{part}" if part else ""
        return self.folder / f".{re.sub('[ :]+', '-', self.called + phase)}{own}.safetensors"

    def begun(self) -> list[Path]:
        """Return the checkpoints of the phases that other networks start or learn from."""
        phases = ["training"]
        for kept, *_ in self._made:
            name = "teacher" if kept == self.hundredth else f"to {kept}"
            phases += [f"pruning {name}", f"tuning {name}"]
        files = (self.file(phase, part) for phase in phases for part in range(_MOST_PARTS))
        return [path for path in files if path.exists()]

    def _kind(self, target: int) -> Kind:
        course, total = self.course, self.connections
        return Kind(course.distills(target, total), course.waypoint(target, total) or 0)

    def _begun(
        self, dense: Weights, seeds: Sequence[int], which: Sequence[int], kind: Kind
    ) -> tuple[Start, Teachers | None]:
        """Return where networks made of these dense ones begin, and their teachers."""
        if kind.waypoint:
            first = self._on_the_way(dense, seeds, kind.waypoint).of(which)
            start = Start(first.weights, first.masks, kind.waypoint)
        else:
            start = Start({name: weight[which] for name, weight in dense.items()})
        if not kind.distilled:
            return start, None
        return start, self._taught_by(self.teachers(dense, seeds).of(which))

    def _taught_by(self, theirs: Small) -> Teachers:
        narrow = self._narrow(theirs.masks)
        weights = theirs.weights if narrow is None else narrow.narrow(theirs.weights)
        return Teachers(self._forward(narrow), weights, _TEACHER_WEIGHT, _TEMPERATURE, own=True)

    def _on_the_way(self, dense: Weights, seeds: Sequence[int], kept: int) -> Small:
        """Return the networks with ``kept`` connections, one made of each dense network."""
        if kept == self.hundredth:
            return self.teachers(dense, seeds)
        everyone = range(len(seeds))
        begun = partial(self._begun, dense, seeds, everyone, self._kind(kept))
        return self._once(kept, seeds, f"to {kept}", begun)

    def _once(
        self, kept: int, seeds: Sequence[int], name: str,
        begun: Callable[[], tuple[Start, Teachers | None]],
    ) -> Small:  # fmt: skip
        """Return networks that others start from or learn from, one per seed; made once."""
        key = kept, *seeds
        if key not in self._made:
            start, teachers = begun()
            self._made[key] = self._shrunk(name, start, [kept] * len(seeds), seeds, teachers)
        return self._made[key]

    def _shrunk(
        self, name: str, start: Start, targets: Sequence[int], seeds: Sequence[int],
        teachers: Teachers | None = None, apart: tuple[int, int] | None = None,
    ) -> Small:  # fmt: skip
        """Return pruned and fine-tuned networks.

        The seeds of each phase differ, so that no phase repeats the variants of another.
        """
        phases = [" ".join([phase, *name.split()]) for phase in ("pruning", "tuning")]
        if apart is None:
            further = start.kept is not None and start.kept < self.hundredth
            apart = _FURTHER if further else _FIRST if teachers is None else _DISTILLED
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
        """Return the stage at the end of pruning. On a CPU, empty filters are dropped meanwhile."""
        narrows = self.device.type == "cpu" and self.course.method in PATHS
        pruning = self.pruning(targets, start.kept)
        stage = self._stage(
            {key: weight.clone() for key, weight in start.weights.items()}, seeds, targets,
            self._narrow(start.masks) if narrows else None,
            masks=start.masks, pruning=pruning, teachers=teachers,
        )  # fmt: skip
        first, *others = self.course.stops(narrow=narrows)
        self._run(phase, stage.training, first)
        for number, stop in enumerate(others, 1):
            before = stage
            stage = self._stage(
                before.whole(before.training.weights), seeds, targets,
                self._narrow(before.whole(before.training.masks)),
                pruning=pruning, teachers=teachers,
            )  # fmt: skip
            stage.training.follow(before.training, partial(stage.taken, before))
            self._run(phase, stage.training, stop, number)
        return stage

    def _narrow(self, masks: Mapping[str, Tensor] | None) -> Narrow | None:
        """Return the parts of the networks that masks leave; None for all of them."""
        return None if masks is None else narrowed(self.recognizer.model, masks, self.device)

    def _forward(self, narrow: Narrow | None) -> Forward:
        if narrow is None:
            return self.forward
        return reading_channels(self.recognizer.channels, narrow.forward())

    def _stage(
        self, weights: Weights, seeds: Sequence[int], targets: Sequence[int] = (),
        narrow: Narrow | None = None, *, masks: Mapping[str, Tensor] | None = None,
        pruning: GradualPruning | None = None, teachers: Teachers | None = None, **options: Any,
    ) -> Stage:  # fmt: skip
        """Return a training of whole networks, or of the parts of them in ``narrow``.

        The targets decide about dropout; dense networks have none.
        """
        recognizer, course = self.recognizer, self.course
        rates = [course.dropout_at(target, self.connections) for target in targets]
        units = weights[_READS_UNITS].shape[-1]
        if narrow is not None:
            weights = narrow.narrow(weights)
            masks = None if masks is None else narrow.narrow(masks)
            if pruning is not None:
                select = selector(narrow.alike(), course.method)
                pruning = replace(pruning, select=Inside(self.select.sizes, select))
        dropout = None
        if any(rates):
            read = None if narrow is None else narrow.units
            dropout = Dropout(_READS_UNITS, rates, units, seeds, self.device, read)
        training = Training(
            self._forward(narrow), weights, self.x, self.y, course.recipe, seeds=seeds,
            masks=masks, pruning=pruning, precision=self.precision,
            feed=feed_of(recognizer, course.augmentation, seeds, self.device),
            dropout=dropout, teachers=teachers, **options,
        )  # fmt: skip
        return Stage(training, narrow)

    def _run(self, phase: str, training: Training, until: int | None = None, part: int = 0) -> None:
        """Train, with one checkpoint for each ``part`` of a phase."""
        path = None if self.folder is None else self.file(phase, part)
        phase = self.called + phase
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
        """Return the untrained network of a seed; it is the same on every device."""
        given = self.recognizer.model
        if given.described()["limited"] or given.described()["fixed"]:
            raise TrellisError(
                "a GCN whose attention is limited to or fixed by an adjacency cannot be shrunk; "
                "build it without an adjacency, or with edges='start'"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = GCN(**given.sizes)
        if self.first is not None:
            own = fresh.state_dict()
            known = self.first.state_dict()
            same = {n: w for n, w in known.items() if n in own and own[n].shape == w.shape}
            fresh.load_state_dict(own | same)
        return fresh
