"""The training loop of a run: phases, mask updates, distillation, checkpoints."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from ...errors import TrellisError
from ...graph.trellis import Trellis
from ...masks import Mask, Masks, masks_of
from ...masks.masked import plain_tensors
from ...saving.nested import others_of
from ..pruner import Pruner, carried
from .course import WAYPOINTS, Course, Phase, rate_factor
from .fake_quant import fake_quantized, round_weights
from .progress import Watch
from .state import random_state, read_state, restore_random, seed_everything, write_state
from .task import Batch, Result, Task

_ROWS = 100  # rows of the history, about
_SCORES = 20  # rows with a score, about

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


@dataclass(frozen=True, eq=False)
class Setup:
    """What all runs of one call of `shrink` share.

    Args:
        task: Loss and score.
        loader: The training batches.
        batches: Their number in an epoch.
        probes: The first of them, for batch norm.
        validation: Batches for the score; None for no score.
        optimizer: Makes an optimizer of a model.
        scheduler: Makes a scheduler of an optimizer and a number of steps; None for our own rate.
        pruning: Options of `Pruner`.
        course: The settings of the phases.
        precision: One of `PRECISIONS`.
        clip: The largest norm of the gradient; None for any.
        compile: Whether to compile the model.
        seed: The seed.
        folder: Where checkpoints are written; None for none.
        seconds: Between two checkpoints.
        settings: What must be the same to continue a run, as JSON can hold it.
        watch: Shows progress.
    """

    task: Task
    loader: Iterable[Any]
    batches: int
    probes: Sequence[Any]
    validation: Iterable[Any] | None
    optimizer: Callable[[nn.Module], Optimizer]
    scheduler: Callable[[Optimizer, int], Any] | None
    pruning: Mapping[str, Any]
    course: Course
    precision: str
    clip: float | None
    compile: bool
    seed: int
    folder: Path | None
    seconds: float
    settings: Mapping[str, Any]
    watch: Watch

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of the precision."""
        kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
        if self.precision not in kinds:
            return nullcontext()
        return torch.autocast(self.task.device.type, kinds[self.precision])

    def score(self, model: nn.Module) -> float | None:
        """Return the score of a model; random numbers stay as they are."""
        if self.validation is None:
            return None
        before = random_state(self.task.device)
        try:
            return self.task.evaluate(model, self.validation, self.autocast)
        finally:
            restore_random(before, self.task.device)


@dataclass(eq=False)
class Run:
    """Train a model through phases; continue from a checkpoint if there is one.

    Args:
        setup: What runs share.
        net: The trellis of the model, which is trained in place.
        phases: The phases.
        name: The name of the run, for its checkpoint and its logs.
        teacher: The first teacher; None makes one of the model at the end of dense training.
        marked: The networks at the ends of phases that ask for it (`Phase.mark`): their masks,
            weights, and what is not a connection.
    """

    setup: Setup
    net: Trellis
    phases: Sequence[Phase]
    name: str = ""
    teacher: nn.Module | None = None
    pruner: Pruner | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    marked: list[dict[str, dict[str, Tensor]]] = field(default_factory=list)
    step: int = 0
    epoch: int = 0
    place: int = 0  # batches of the epoch that are done
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.model = self.net.model
        self.device = self.setup.task.device
        self.steps = sum(phase.steps for phase in self.phases)
        self.ends: list[int] = []
        for phase in self.phases:
            self.ends.append((self.ends[-1] if self.ends else 0) + phase.steps)
        self.current = -1  # index of the phase that is prepared
        self.shell: nn.Module | None = None
        if self.distills and self.teacher is None:
            self.shell = _bare_copy(self.model)
        self.optimizer = self.setup.optimizer(self.owner())
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.scheduler = None
        if self.setup.scheduler is not None:
            self.scheduler = self.setup.scheduler(self.optimizer, self.steps)
        half = self.setup.precision == "fp16"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=half)
        self.losses = torch.zeros((), dtype=torch.float64, device=self.device)
        self.counted = 0
        self.runner: Any = self.model
        self._saved_random: Mapping[str, Any] = {}

    @property
    def distills(self) -> bool:
        """Whether pruned networks learn from a teacher."""
        return any(phase.distill for phase in self.phases) and self.setup.task.distills()

    @property
    def checkpoint(self) -> Path | None:
        """The file of the checkpoint."""
        folder = self.setup.folder
        suffix = f"-{self.name.replace(' ', '-')}" if self.name else ""
        return None if folder is None else folder / f".checkpoint{suffix}.safetensors"

    @property
    def score(self) -> float | None:
        """The score of the trained model; it is in the last row."""
        found: float | None = self.history[-1]["score"] if self.history else None
        return found

    def train(self) -> None:
        """Train to the end."""
        began = time.monotonic() - self._continue()
        last = time.monotonic()
        skip = self.place
        if self.setup.compile:
            self.runner = torch.compile(self.model)
        saved = self._saved_random
        while self.step < self.steps:
            self._seed_epoch()
            found = 0
            for given in self.setup.loader:
                found += 1
                if skip:
                    skip -= 1
                    if not skip:
                        restore_random(saved, self.device)
                    continue
                self._advance(given)
                self.place += 1
                if self.step >= self.steps:
                    break
                if time.monotonic() - last >= self.setup.seconds:
                    self.seconds = time.monotonic() - began
                    self._write()
                    last = time.monotonic()
            if found == 0:
                raise TrellisError(
                    f"train_loader yields nothing in epoch {self.epoch + 1}; expected an iterable "
                    "that begins again at every epoch"
                )
            if self.step < self.steps:
                self.epoch, self.place, skip = self.epoch + 1, 0, 0
        self.seconds = time.monotonic() - began
        self._write()

    def _advance(self, given: Any) -> None:
        """Train on one batch, update masks if that is due, and note a row of history."""
        index = next(i for i, end in enumerate(self.ends) if self.step < end)
        if index != self.current:
            self._begin(index)
        phase = self.phases[index]
        start = self.ends[index] - phase.steps
        if self.scheduler is None:
            factor = rate_factor(phase, self.step - start)
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = rate * factor
        loss = self._train(self.setup.task.read(given), phase)
        self.losses += loss
        self.counted += 1
        self.step += 1
        if phase.quantize is not None and self.step == self.ends[index]:
            self.finish_rounding(self.setup.task.read(given))
        if phase.kind == "prune":
            assert self.pruner is not None
            if self.pruner.step() is not None:
                estimate_batch_norm(self.model, self.setup)
        self._note(phase, loss)
        if phase.mark and self.step == self.ends[index]:
            self.marked.append(self._mark())

    def owner(self) -> nn.Module:
        """Return the module whose parameters the optimizer trains."""
        return self.model

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint stores of the model."""
        return self.model.state_dict()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.model.load_state_dict(state)

    def measured(self) -> float | None:
        """Return the score that the history notes."""
        return self.setup.score(self.model)

    @property
    def kept(self) -> int:
        """The number of connections that the history notes."""
        return self.net.total if self.pruner is None else self.pruner.kept

    def learn(self, batch: Batch, phase: Phase) -> Tensor:
        """Add the gradients of a batch; return its loss, without a teacher's."""
        with self.setup.autocast():
            result = self.forward(batch, phase)
            loss = told = result.loss.reshape(())
            if phase.distill and self.teacher is not None:
                taught = self._taught(result, batch)
                loss = (1 - phase.distill) * loss + phase.distill * taught
        self.scaler.scale(loss).backward()
        return told.detach()

    def forward(self, batch: Batch, phase: Phase) -> Result:
        """Return the result of a batch, rounded as the phase asks for."""
        with nullcontext() if phase.quantize is None else fake_quantized(self.runner):
            return self.setup.task.result(self.runner, batch)

    def finish_rounding(self, batch: Batch) -> None:
        """Round weights at the end, to those that the last phase has trained with."""
        self.model.eval()
        with _unchanged_random(self.device), self.setup.autocast():
            round_weights(self.model, lambda: self.setup.task.result(self.model, batch))
        self.model.train()

    def _train(self, batch: Batch, phase: Phase) -> Tensor:
        setup = self.setup
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.learn(batch, phase)
        if setup.clip is not None:
            self.scaler.unscale_(self.optimizer)
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(parameters, setup.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scheduler is not None:
            self.scheduler.step()
        return loss

    def _mark(self) -> dict[str, dict[str, Tensor]]:
        assert self.pruner is not None
        masks = dict(self.pruner.masks)
        weights = plain_tensors(self.model)
        others = others_of(self.model, list(masks))
        return {
            "masks": masks,
            "weights": {name: weights[name].detach().clone() for name in masks},
            "others": {name: value.detach().clone() for name, value in others.items()},
        }

    def _taught(self, result: Result, batch: Batch) -> Tensor:
        assert self.teacher is not None
        with torch.no_grad():
            theirs = self.teacher(*result.inputs.args, **result.inputs.kwargs)
        task, temperature = self.setup.task, self.setup.course.temperature
        return task.distilled(result.output, theirs, batch.targets, temperature)

    def _begin(self, index: int) -> None:
        """Prepare a phase: make the teacher and the pruner."""
        self.current = index
        phase = self.phases[index]
        if phase.kind != "prune":
            return
        # The dense network teaches, and after the first waypoint the one there.
        first = phase.begin == self.net.total // WAYPOINTS[0]
        if phase.distill and self.distills and (self.teacher is None or first):
            self._teach(plain_state(self.model))
        self.pruner = self._pruner(phase)
        estimate_batch_norm(self.model, self.setup)

    def _teach(self, state: Mapping[str, Tensor]) -> None:
        if self.shell is None:  # a teacher from outside is not changed
            assert self.teacher is not None
            self.shell = _bare_copy(self.teacher)
        self.shell.load_state_dict(state)
        self.teacher = self.shell

    def _pruner(self, phase: Phase, state: Mapping[str, Any] | None = None) -> Pruner:
        schedule = self.setup.course.schedule(phase, self.net.total)
        options = self.setup.pruning
        return Pruner(self.net, keep=phase.keep, schedule=schedule, state=state, **options)

    def _note(self, phase: Phase, loss: Tensor) -> None:
        """Add a row to the history if that is due, and show progress."""
        setup, end = self.setup, self.step in self.ends
        begun = self.step == self.ends[self.current] - phase.steps + 1
        show = setup.watch.due() or end or begun
        row = end or self.step == 1 or self.step % max(self.steps // _ROWS, 1) == 0
        if not (show or row):
            return
        mean = float(self.losses) / max(self.counted, 1)
        if not math.isfinite(mean) or not math.isfinite(float(loss)):
            raise TrellisError(
                f"training diverged (the loss is {mean}) at step {self.step:,}, in the phase "
                f"{phase.name!r}; lower the learning rate with optimizer=, give clip=1.0, or look "
                "for NaN in the data"
            )
        kept = self.kept
        if row:
            scored = end or self.step % (max(self.steps // _SCORES, 1)) == 0
            score = self.measured() if scored else None
            self.history.append(
                {"step": self.step, "phase": phase.name, "loss": mean, "kept": kept, "score": score}
            )
            self.losses.zero_()
            self.counted = 0
        if show:
            known = [r["score"] for r in self.history if r["score"] is not None]
            measured = f", score {known[-1]:.4g}" if known else ""
            state = f"loss {mean:.4g}{measured}, {kept:,} kept"
            called = f"{self.name}: {phase.name}" if self.name else phase.name
            setup.watch.show(called, self.step, self.steps, state)

    def _seed_epoch(self) -> None:
        seed = (self.setup.seed + 1_000_003 * (self.epoch + 1)) % 2**63
        seed_everything(seed)
        loader = self.setup.loader
        parts: list[Any] = [loader, getattr(loader, "sampler", None)]
        for part in parts:
            generator = getattr(part, "generator", None)
            if isinstance(generator, torch.Generator):
                generator.manual_seed(seed)
            if hasattr(part, "set_epoch"):
                part.set_epoch(self.epoch)

    def _write(self) -> None:
        if self.checkpoint is None:
            return
        state = {
            "settings": self.setup.settings,
            "step": self.step,
            "epoch": self.epoch,
            "place": self.place,
            "seconds": self.seconds,
            "phase": self.current,
            "model": self.state(),
            "marked": self.marked,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "pruner": None if self.pruner is None else self.pruner.state_dict(),
            # A teacher from outside is the same in every run.
            "teacher": None if self.shell is None else self.shell.state_dict(),
            "taught": self.teacher is not None and self.teacher is self.shell,
            "losses": self.losses,
            "counted": self.counted,
            "history": self.history,
            "random": random_state(self.device),
        }
        write_state(self.checkpoint, state)

    def _continue(self) -> float:
        """Restore the checkpoint, if there is one; return the seconds that it had taken."""
        path = self.checkpoint
        if path is None or not path.exists():
            return 0.0
        state = read_state(path)
        self.setup.watch.say(
            f"continuing {path.parent} at step {state['step']:,} of {self.steps:,}"
        )
        self.current = state["phase"]
        if state["pruner"] is not None:
            of = max(i for i in range(self.current + 1) if self.phases[i].kind == "prune")
            self.pruner = self._pruner(self.phases[of], state["pruner"])
        self.restore(state["model"])
        self.marked = state.get("marked", [])  # older releases noted none
        if state["teacher"] is not None:
            if self.shell is None:  # a teacher from outside was replaced
                self.shell = _bare_copy(self.teacher or self.model)
            self.shell.load_state_dict(state["teacher"])
            if state["taught"]:
                self.teacher = self.shell
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.scaler.load_state_dict(state["scaler"])
        self.step, self.epoch, self.place = state["step"], state["epoch"], state["place"]
        self.losses.copy_(state["losses"])
        self.counted, self.history = state["counted"], state["history"]
        self._saved_random = state["random"]
        return float(state["seconds"])


def plain_state(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a model's state without masks: pruned weights are 0."""
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else value
        for name, value in model.state_dict().items()
    }


def _bare_copy(model: nn.Module) -> nn.Module:
    """Return a copy of a model without masks, in eval mode."""
    found = copy.deepcopy(model)
    if any(isinstance(module, Mask) for module in found.modules()):
        masks_of(found).bake(found)
    return found.eval().requires_grad_(False)


@torch.no_grad()
def without_zeros(model: nn.Module, seed: int) -> None:
    """Replace weights that are exactly 0 by small numbers.

    A pruner never keeps a weight that is 0, and layers may begin at 0.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            noise = torch.rand(parameter.shape, generator=generator) * 1e-3 + 1e-3
            zero = parameter == 0
            parameter.copy_(torch.where(zero, noise.to(parameter), parameter))


def copied(net: Trellis) -> Trellis:
    """Return a trellis of a copy of its model."""
    return replace(net, model=copy.deepcopy(net.model), cache={})


def masks_in(run: Run) -> Masks:
    """Return the masks of a run at its end; pruned weights are then stored as 0."""
    assert run.pruner is not None
    masks = run.pruner.masks
    for mine in carried(run.model, masks):
        mine.renew(masks[mine.name])
    return masks


@torch.no_grad()
def estimate_batch_norm(model: nn.Module, setup: Setup) -> None:
    """Estimate the statistics of batch norm anew, on a few batches.

    After a mask update, those of the network before it are wrong.
    """
    norms = [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm) and module.track_running_stats
    ]
    if not norms:
        return
    was = model.training
    momenta = [norm.momentum for norm in norms]
    model.eval()
    with _unchanged_random(setup.task.device):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
            norm.train()
        for given in setup.probes:
            with setup.autocast():
                setup.task.result(model, setup.task.read(given))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(was)


@contextmanager
def _unchanged_random(device: torch.device) -> Iterator[None]:
    before = random_state(device)
    try:
        yield
    finally:
        restore_random(before, device)
