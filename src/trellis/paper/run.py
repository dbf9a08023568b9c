"""Run a plan: train, prune and test the networks that are missing in the run's folder."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..cells import Runner
from ..errors import TrellisError
from ..skeleton import Evaluation, Skeletons
from ..skeleton.model.gcn_stacks import narrowed
from ..training import Training, forward_of, predictions, stack
from ..training.checkpoint import check_versions, hardware, versions
from ..training.stacks import Weights
from .folder import Folder, Record, opened
from .plan import Cell, Plan, Stack, architecture_of, plan_of
from .pruning import (
    Begin,
    Job,
    Selection,
    import_methods,
    method_modules,
    packed,
    pruning,
    read_network,
)
from .render import comma, latex, markdown, text
from .settings import Data, Named, Recordings, Settings, Split, describe
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
    runner: Runner | None = None,
    watch: Watch | None = None,
) -> Folder:
    """Make a table in a folder, or continue the run that was begun there.

    Args:
        settings: The settings of the table.
        skeletons: The recordings.
        out: The folder of the run.
        device: The device to train on, of the kind in the settings (default: the first).
        workers: Processes that prune; figures do not depend on it.
        runner: Where to train whole stacks instead, such as `trellis.integrations.ray.Cluster`.
            This process then needs no device of the settings, and ``workers`` is not used.
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
    if place.type == "cuda" and runner is None and not torch.cuda.is_available():
        raise TrellisError("this machine has no CUDA device; give device='cpu'")
    data = describe(skeletons)
    plan = plan_of(settings, data)
    with opened(out, settings, data) as folder:
        folder.write({"recordings.json": Named.of(skeletons).text()})
        waiting = [part for part in plan.stacks if not finished(folder, part)]
        if waiting and runner is not None:
            _spread(folder, plan, waiting, skeletons, runner, watch)
        elif waiting:
            recordings = Recordings(skeletons, settings.chunks, settings.recipe.origin)
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


# A cell of a runner is a stack. Its worker makes it in a scratch folder, with the code of any run,
# and returns the files. The driver puts them into the run's folder.


class Made(NamedTuple):
    """A stack that a worker made: its cells, and its files by path."""

    records: list[Record]
    files: dict[str, NDArray[np.uint8]]


class StackCell:
    """Make stacks in a worker."""

    def __init__(
        self,
        settings: Settings,
        data: Data,
        skeletons: Skeletons,
        known: Mapping[str, str],
        modules: Sequence[tuple[str, str]],
    ) -> None:
        check_versions(known)
        import_methods(modules)
        self.settings, self.data = settings, data
        self.plan = plan_of(settings, data)
        self.recordings = Recordings(skeletons, settings.chunks, settings.recipe.origin)
        self.device = torch.device(settings.device)

    def __call__(
        self, job: tuple[int, Sequence[int]], *dense: NDArray[np.uint8]
    ) -> Made:  # job: the stack's number, and those of the files in ``dense``
        """Return the cells and files of a stack."""
        number, sources = job
        part = self.plan.stacks[number]
        with tempfile.TemporaryDirectory() as path:
            folder = Folder(Path(path), self.settings, self.data, {})
            for source, content in zip(sources, dense, strict=True):
                folder.dense(source).parent.mkdir(exist_ok=True)
                content.tofile(folder.dense(source))
            with pruning(architecture_of(self.settings, self.data), workers=1) as begin:
                stacks = Stacks(folder, self.plan, [part], self.device, begin, None)
                _each([part], self.recordings, stacks, ahead=False)
            files = _files(folder, part)
            return Made(list(folder.records.values()), files)


def _files(folder: Folder, part: Stack) -> dict[str, NDArray[np.uint8]]:
    """Return the files of a stack, by their paths in the folder."""
    paths = [folder.dense(part.number)] if part.dense else [folder.networks(part.number)]
    return {
        path.relative_to(folder.path).as_posix(): np.fromfile(path, np.uint8)
        for path in paths
        if path.exists()
    }


def _spread(
    folder: Folder,
    plan: Plan,
    waiting: Sequence[Stack],
    skeletons: Skeletons,
    runner: Runner,
    watch: Watch | None,
) -> None:
    """Make stacks with a runner: first the dense ones, then those that are pruned from them."""
    known = versions()
    recipe = folder.settings.recipe

    def work(part: Stack) -> int:
        return len(part.cells) * (recipe.epochs if part.dense else recipe.tune_epochs)

    whole = sum(map(work, plan.stacks))
    before = done = whole - sum(map(work, waiting))
    given = (folder.settings, folder.data, skeletons, known, method_modules())
    with runner.cells(StackCell, *given) as cells:
        for dense in (True, False):
            shared: dict[int, object] = {}  # handles of files of dense networks
            begun = {}
            for part in waiting:
                if part.dense is not dense:
                    continue
                sources: list[int] = []
                if not dense:
                    found = {plan.dense(cell.seed, cell.fold)[0].number for cell in part.cells}
                    sources = sorted(found)
                for number in sources:
                    if number not in shared:
                        content = np.fromfile(folder.dense(number), np.uint8)
                        shared[number] = cells.share(content)
                handles = [shared[number] for number in sources]
                begun[cells.submit((part.number, sources), *handles)] = part
            for future in as_completed(begun):
                part, made = begun[future], future.result()
                folder.take(made.files)
                folder.add(made.records)
                done += work(part)
                if watch is not None:
                    kind = "dense" if dense else "pruned"
                    doing = f"made {len(part.cells)} {kind} networks"
                    watch(
                        Progress(doing, part.number + 1, len(plan.stacks), None, None, done,
                                 before, whole)
                    )  # fmt: skip


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
