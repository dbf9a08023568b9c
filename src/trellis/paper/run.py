"""Run a plan: train, prune and test the networks that are missing in the run's folder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import TrellisError
from ..skeleton import Evaluation, Skeletons
from ..skeleton.model.narrow import narrowed
from ..training import Training, forward_of, predictions, stack
from ..training.checkpoint import hardware
from ..training.stacks import Weights
from .folder import Folder, Record, opened
from .plan import Cell, Plan, Stack, architecture_of, plan_of
from .pruning import Begin, Job, Selection, packed, pruning, read_network
from .render import comma, latex, markdown, text
from .settings import Named, Recordings, Settings, Split, describe
from .tables import report_of


def write_outputs(folder: Folder) -> None:
    """Write ``table.txt``, ``.md``, ``.csv`` and ``.tex`` from the cells finished so far."""
    report = report_of(folder)
    folder.write(
        {
            "table.txt": text(report),
            "table.md": markdown(report),
            "table.csv": comma(report),
            "table.tex": latex(report),
        }
    )


def reproduce(
    settings: Settings,
    skeletons: Skeletons,
    out: Path,
    *,
    device: str | torch.device | None = None,
    workers: int = 1,
    watch: Watch | None = None,
) -> Folder:
    """Make a table in a folder, or continue the run that was begun there.

    Args:
        settings: The settings of the table.
        skeletons: The recordings.
        out: The folder of the run.
        device: The device to train on, of the kind in the settings (default: the first).
        workers: Processes that prune; figures do not depend on it.
        watch: Called with the progress several times a second.

    Returns:
        The folder with all finished cells and the tables.

    Raises:
        TrellisError: The folder holds another run, or the device does not fit the settings.
    """
    place = torch.device(settings.device if device is None else device)
    if place.type != settings.device:
        raise TrellisError(
            f"expected a {settings.device!r} device, as in the settings, got {place}"
        )
    if place.type == "cuda" and not torch.cuda.is_available():
        raise TrellisError("this machine has no CUDA device; give device='cpu'")
    data = describe(skeletons)
    plan = plan_of(settings, data)
    with opened(out, settings, data) as folder:
        folder.write({"recordings.json": Named.of(skeletons).text()})
        waiting = [part for part in plan.stacks if not finished(folder, part)]
        if waiting:
            recordings = Recordings(skeletons, settings.chunks)
            with pruning(architecture_of(settings, data), workers) as begin:
                stacks = Stacks(folder, plan, waiting, place, begin, watch)
                _each(waiting, recordings, stacks, ahead=place.type == "cuda")
        write_outputs(folder)
    return folder


def finished(folder: Folder, part: Stack) -> bool:
    """Return whether all results of a stack are stored."""
    stored = all(cell.key in folder.records for cell in part.cells)
    return stored and (not part.dense or folder.dense(part.number).exists())


def _each(waiting: list[Stack], recordings: Recordings, stacks: Stacks, *, ahead: bool) -> None:
    """Make one stack after another; with ``ahead``, prune the next one while this one trains."""
    begun: dict[int, Callable[[], list[Selection]]] = {}
    split: Split | None = None
    for i, part in enumerate(waiting):
        if split is None or part.fold != waiting[i - 1].fold:
            split = recordings.fold(part.fold, stacks.device)
        if part.dense:
            stacks.train(part, split)
            continue
        for later in waiting[i : i + 2 if ahead else i + 1]:
            if later.number not in begun:
                begun[later.number] = stacks.begin_pruning(later)
        stacks.tune(part, split, begun.pop(part.number))


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Args:
        doing: What is being done, in words.
        stack: The number of the stack, from 1.
        stacks: The number of stacks.
        loss: Mean loss of the networks being trained; None while pruning.
        accuracy: Their mean training accuracy; None while pruning.
        done: Work done so far, in epochs times networks.
        before: The part of ``done`` that earlier calls did.
        work: The work of the whole run.
    """

    doing: str
    stack: int
    stacks: int
    loss: float | None
    accuracy: float | None
    done: int
    before: int
    work: int


Watch = Callable[[Progress], None]


_PAUSE = 0.25  # seconds between reports; reading a loss synchronizes with the GPU


class Trained(NamedTuple):
    """The weights of a stack, and each network's loss at the last step."""

    weights: Weights
    losses: list[float]


class Stacks:
    """Train, prune and test the stacks of a run."""

    def __init__(
        self,
        folder: Folder,
        plan: Plan,
        waiting: Sequence[Stack],
        device: torch.device,
        begin: Begin,
        watch: Watch | None,
    ) -> None:
        self.folder, self.plan, self.device = folder, plan, device
        self.begin, self.watch = begin, watch
        self.settings, self.recipe = folder.settings, folder.settings.recipe
        self.hardware = hardware(device)
        self.architecture = architecture_of(folder.settings, folder.data)
        self.model = self.architecture.build(0).to(device)
        self.forward = forward_of(self.model)
        self.work = sum(map(self._work, plan.stacks))
        self.before = self.done = self.work - sum(map(self._work, waiting))

    def train(self, part: Stack, split: Split) -> None:
        """Train a stack of dense networks; store their weights, then their cells."""
        began = time.monotonic()
        weights = stack([self.architecture.build(cell.seed) for cell in part.cells])
        weights = {name: w.to(self.device) for name, w in weights.items()}
        trained = self._trained(part, weights, None, split)
        self.folder.write_dense(part.number, trained.weights)
        selections = self.begin(self._jobs(part.cells))()
        self.folder.add(self._tested(part, part.cells, selections, trained, split, began))

    def begin_pruning(self, part: Stack) -> Callable[[], list[Selection]]:
        """Start to prune a stack; the returned function waits for the result."""
        return self.begin(self._jobs(part.cells))

    def tune(self, part: Stack, split: Split, wait: Callable[[], list[Selection]]) -> None:
        """Fine-tune a stack of pruned networks; cells that cannot be pruned store the reason."""
        began = time.monotonic()
        self._report("pruning", part, None)
        found = list(zip(part.cells, wait(), strict=True))
        records = [
            self._head(part, cell) | {"refused": selection.refused}
            for cell, selection in found
            if selection.refused is not None
        ]
        cells = [cell for cell, selection in found if selection.refused is None]
        selections = [selection for _, selection in found if selection.refused is None]
        self.done += len(records) * self.recipe.tune_epochs
        if cells:
            weights = self._dense_weights(cells)
            masks = [selection.masks(self.architecture.shapes) for selection in selections]
            stacked = {n: torch.stack([m[n] for m in masks]).to(self.device) for n in masks[0]}
            trained = self._trained(part, weights, stacked, split, cells)
            records += self._tested(part, cells, selections, trained, split, began)
            if shown := packed(cells, trained.weights, stacked):
                self.folder.write_networks(part.number, shown)
        self.folder.add(records)

    def _jobs(self, cells: Sequence[Cell]) -> list[Job]:
        jobs = []
        for cell in cells:
            source, place = self.plan.dense(cell.seed, cell.fold)
            jobs.append(Job(self.folder.dense(source.number), place, cell.row, cell.seed))
        return jobs

    def _dense_weights(self, cells: Sequence[Cell]) -> Weights:
        """Return the stack of dense networks that the cells are pruned from."""
        shapes = self.architecture.shapes
        found = [read_network(job.dense, job.place, shapes) for job in self._jobs(cells)]
        return {n: torch.stack([network[n] for network in found]).to(self.device) for n in shapes}

    def _trained(
        self,
        part: Stack,
        weights: Weights,
        masks: Weights | None,
        split: Split,
        cells: Sequence[Cell] | None = None,
    ) -> Trained:
        """Train a stack; on a CPU without the filters and channels that no network uses."""
        seeds = [cell.seed for cell in (part.cells if cells is None else cells)]
        doing = "training" if masks is None else "tuning"
        forward = self.forward
        narrow = None if masks is None else narrowed(self.model, masks, self.device)
        if narrow is not None and masks is not None:
            weights, masks, forward = narrow.narrow(weights), narrow.narrow(masks), narrow.forward()
        try:
            training = Training(
                forward,
                weights,
                split.train_x,
                split.train_y,
                self.recipe,
                seeds=seeds,
                masks=masks,
                tune=masks is not None,
                precision=self.settings.precision,
            )
            last = -math.inf
            while not training.done:
                training.epoch()
                self.done += len(seeds)
                if time.monotonic() - last > _PAUSE or training.done:
                    training.check_finite()
                    self._report(doing, part, training)
                    last = time.monotonic()
        except torch.cuda.OutOfMemoryError:
            raise TrellisError(
                f"a stack of {len(seeds)} networks does not fit into the memory of "
                f"{self.hardware}; run again with stack={max(1, len(seeds) // 2)}"
            ) from None
        whole = training.weights if narrow is None else narrow.whole(training.weights)
        return Trained(whole, training.loss.tolist())

    def _tested(
        self,
        part: Stack,
        cells: Sequence[Cell],
        selections: Sequence[Selection],
        trained: Trained,
        split: Split,
        began: float,
    ) -> list[Record]:
        train = self._said(trained.weights, split.train_x)
        test = self._said(trained.weights, split.test_x)
        train_y, test_y = split.train_y.cpu().numpy(), split.test_y.cpu().numpy()
        names = [str(i) for i in range(self.architecture.classes)]
        seconds = round((time.monotonic() - began) / len(cells), 3)
        records = []
        for i, (cell, selection) in enumerate(zip(cells, selections, strict=True)):
            figures = {
                "correct": int((test[i] == test_y).sum()),
                "test": len(test_y),
                "mean_class": Evaluation.of(test_y, test[i], names).mean_class,
                "train_correct": int((train[i] == train_y).sum()),
                "train": len(train_y),
                "said": test[i].tolist(),
                "loss": trained.losses[i] if math.isfinite(trained.losses[i]) else None,
                "seconds": seconds,
            }
            records.append(self._head(part, cell) | selection.figures | figures)
        return records

    def _said(self, weights: Weights, x: Tensor) -> NDArray[np.int64]:
        return predictions(self.forward, weights, x).cpu().numpy()

    def _head(self, part: Stack, cell: Cell) -> Record:
        return {
            "cell": cell.key,
            "row": cell.row.key,
            "seed": cell.seed,
            "fold": cell.fold,
            "stack": part.number,
            "device": self.hardware,
        }

    def _work(self, part: Stack) -> int:
        return len(part.cells) * (self.recipe.epochs if part.dense else self.recipe.tune_epochs)

    def _report(self, doing: str, part: Stack, training: Training | None) -> None:
        if self.watch is not None:
            count = len(part.cells)
            networks = f"{count} {'dense ' * part.dense}network{'s' * (count > 1)}"
            loss = None if training is None else float(training.loss.mean())
            accuracy = None if training is None else float(training.hits.mean())
            self.watch(
                Progress(f"{doing} {networks}", part.number + 1, len(self.plan.stacks), loss,
                         accuracy, self.done, self.before, self.work)
            )  # fmt: skip
