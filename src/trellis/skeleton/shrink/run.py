"""Shrink a recognizer: from recordings to a small network."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...cells import Cells, Runner
from ...errors import TrellisError
from ...files import intact, replacing
from ...masks import Masks
from ...methods.budget import as_written
from ...methods.budget import budget as exact_budget
from ...saving.nested import Nested
from ...schema import CheckpointHeader, fitted, parsed
from ...training import Forward, Weights, losses, predictions, unstack
from ...training.checkpoint import HEADER, OtherSettings, check_versions, hardware, versions
from ...training.schedule import differing
from ...training.search import ladder, smallest
from ...training.shrink.prepare import alone, budgets_of, several
from ..data.dataset import Fold, Indices, Skeletons
from ..model.fitting import metrics
from ..model.gcn import GCN
from ..model.gcn_stacks import BY_LAYER
from ..model.recognizer import Recognizer
from .course import Course
from .stages import Maker, Small, Watch

# Arguments of `shrink`, checked before anything is trained.


def accuracy_of(given: Any) -> float:
    """Return an accuracy above 0 and up to 1."""
    if isinstance(given, bool) or not isinstance(given, Real | Decimal):
        raise TrellisError(
            f"expected a number, got at_least={given!r}; give an accuracy such as 0.9"
        )
    value = float(as_written(given))
    if not 0 < value <= 1:
        raise TrellisError(f"expected an accuracy above 0 and up to 1, got at_least={given!r}")
    return value


def seed_of(given: Any) -> int:
    """Return a seed from 0 to 2^63 - 1."""
    whole = isinstance(given, Integral) and not isinstance(given, bool)
    if not (whole and 0 <= int(given) < 2**63):
        raise TrellisError(f"expected a whole number from 0 to 2^63 - 1, got seed={given!r}")
    return int(given)


def device_of(given: torch.device | str) -> torch.device:
    """Return an existing CPU or CUDA device."""
    try:
        device = torch.device(given)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise TrellisError(f"expected 'cpu', 'cuda' or 'cuda:N', got device={given!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrellisError(
            f"this machine has no CUDA device, got device={str(given)!r}; give 'cpu'"
        )
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        raise TrellisError(
            f"this machine has {count} CUDA devices, from 'cuda:0'; got device={str(given)!r}"
        )
    return device


def folder_of(given: str | PathLike[str] | None) -> Path | None:
    """Return an existing folder."""
    if given is None:
        return None
    folder = Path(given)
    if not folder.is_dir():
        raise TrellisError(
            f"expected an existing folder, got folder={str(folder)!r}; create it first"
        )
    return folder


def as_json(given: Any) -> Any:
    """Return a number of any type as JSON can hold it; others are checked later.

    >>> import numpy as np
    >>> as_json(np.int64(60)), as_json(0.9), as_json(Decimal("0.9"))
    (60, 0.9, '0.9')
    """
    if given is None or isinstance(given, bool | int | float):
        return given
    if isinstance(given, tuple):
        return [as_json(each) for each in given]
    return int(given) if isinstance(given, Integral) else str(given)


def check_begun(folder: Path, about: Mapping[str, Any]) -> None:
    """Raise if checkpoints in the folder are of a run with other settings.

    This is checked at the start, because the phase that would notice may come after a search.
    """
    wanted = json.loads(json.dumps(dict(about)))
    for path in sorted(folder.glob(".*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                names: list[str] = file.keys()
                if not intact({name: file.get_tensor(name) for name in names}, metadata):
                    continue
            stored = fitted(parsed(metadata.get(HEADER, "null")), CheckpointHeader)["settings"]
        except (OSError, SafetensorError, TrellisError):
            continue  # damaged, or not a checkpoint; its phase raises if it needs this file
        differs = differing({name: stored.get(name) for name in wanted}, wanted)
        if differs:
            raise OtherSettings(path, differs)


_SHARE = 4  # one recording of _SHARE is held out


@dataclass(frozen=True)
class Point:
    """A network of a search.

    Args:
        budget: The budget.
        kept: The connections kept.
        total: The connections of the dense network.
        accuracy: The accuracy on the recordings held out.
    """

    budget: int
    kept: int
    total: int
    accuracy: float

    def to_dict(self) -> dict[str, Any]:
        """Return the point as JSON can hold it."""
        return {
            "sparsity": 1 - self.kept / self.total,
            "budget": self.budget,
            "kept": self.kept,
            "validation_top1": self.accuracy,
        }


def held_out(labels: Indices, chosen: Indices, seed: int) -> tuple[Indices, Indices]:
    """Split training recordings: a quarter of each class is held out, at least one of two.

    Returns the indices to train on and those held out.

    >>> held_out(np.array([0, 0, 0, 0, 1, 1]), np.arange(6), seed=0)
    (array([0, 1, 3, 4]), array([2, 5]))
    """
    generator = np.random.default_rng(seed)
    out: list[int] = []
    for label in np.unique(labels[chosen]):
        mine = generator.permutation(chosen[labels[chosen] == label])
        count = max(len(mine) // _SHARE, 1) if len(mine) > 1 else 0
        out += mine[:count].tolist()
    if not out:
        raise TrellisError(
            "at_least needs recordings to hold out, and no class has two training recordings; give "
            "sparsity or keep instead"
        )
    held = np.array(sorted(out), np.int64)
    return np.setdiff1d(chosen, held), held


_DENSE = "training"  # the phase of the dense networks
_TOGETHER = {"cpu": 1, "cuda": 32}  # networks that train about as fast as one


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of `shrink`.

    Args:
        dense: The dense recognizer.
        small: The small recognizer that was made of it; the largest of several rates.
        kept: The connections of the small one; fewer than the budget if no more could be live.
        budget: The budget.
        total: The connections of the dense one.
        curve: The networks of a search, largest first.
        at_least: The accuracy that was searched for.
        met: Whether the search reached it on the recordings held out; None without a search.
        nested: The networks of all rates, if several were asked for; else None.
    """

    dense: Recognizer
    small: Recognizer
    kept: int
    budget: int
    total: int
    curve: tuple[Point, ...] = ()
    at_least: float | None = None
    met: bool | None = None
    nested: Nested | None = None

    @property
    def rates(self) -> list[dict[str, Any]]:
        """The sizes and metrics of nested networks, largest first; empty for one network."""
        found: list[dict[str, Any]] = self.small.history[-1].get("rates") or []
        return found


def shrink(
    recognizer: Recognizer,
    data: Skeletons,
    fold: Fold,
    course: Course,
    *,
    sparsity: float | Sequence[float] | None = None,
    keep: int | Sequence[int] | None = None,
    at_least: float | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    precision: str = "fp32",
    folder: str | PathLike[str] | None = None,
    about: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    runner: Runner | None = None,
) -> Outcome:
    """Train, prune gradually and fine-tune a network on a fold.

    Give one of ``sparsity``, ``keep`` and ``at_least``. With ``at_least``, a quarter of the
    training recordings is held out, and the smallest network with that accuracy on them is searched
    for. A network of its size is then made from all training recordings. Test recordings are used
    only at the end, for the metrics.

    Several rates make nested networks with shared weights (`trellis.Nested`).

    Args:
        recognizer: An untrained recognizer (`Recognizer.fresh`).
        data: The recordings.
        fold: Which of them to train and to test on.
        course: The settings (`course_named`).
        sparsity: The fraction of connections to remove, or several.
        keep: The number of connections to keep, or several.
        at_least: The accuracy to reach.
        seed: The seed of weights, batches, noise and augmentation.
        device: "cpu", "cuda" or "cuda:N".
        precision: "fp32", "tf32" or "bf16".
        folder: An existing folder for checkpoints. The same call then continues a run that was
            killed, with the same result.
        about: Further facts for the history, which must be the same in order to continue.
        watch: Called after every epoch with the phase's name and its training.
        runner: Where the networks of a search are made, such as
            `trellis.integrations.ray.Cluster` (default: here, one after another).

    Returns:
        The dense and the small recognizer.

    Raises:
        TrellisError: An argument is invalid, or training diverged.
        OtherSettings: The folder holds checkpoints of a run with other settings.
    """
    sparsity, keep = alone("sparsity", sparsity), alone("keep", keep)
    if sum(given is not None for given in (sparsity, keep, at_least)) != 1:
        raise TrellisError(
            "give one of sparsity (the fraction removed, such as 0.999), keep (a number of "
            f"connections) and at_least (an accuracy, such as 0.9); got "
            f"sparsity={sparsity!r}, keep={keep!r}, at_least={at_least!r}"
        )
    if runner is not None and folder is None:
        with tempfile.TemporaryDirectory() as scratch:  # what workers return is put there
            return shrink(
                recognizer, data, fold, course, sparsity=sparsity, keep=keep, at_least=at_least,
                seed=seed, device=device, precision=precision, folder=scratch, about=about,
                watch=watch, runner=runner,
            )  # fmt: skip
    at_least = None if at_least is None else accuracy_of(at_least)
    seed, device, place = seed_of(seed), device_of(device), folder_of(folder)
    for part, some in (("train", fold.train), ("test", fold.test)):
        if len(some) == 0:
            raise TrellisError(f"fold {fold.name!r} of {data.source!r} has no {part} recordings")
    asked = {"sparsity": as_json(sparsity), "keep": as_json(keep), "at_least": at_least}
    options: dict[str, Any] = {
        "device": device, "precision": precision, "folder": place, "watch": watch,
        "about": {"source": data.source, "seed": seed} | asked | dict(about or {}),
    }  # fmt: skip
    labels = recognizer.labels(data)
    makers: list[Maker] = []

    def maker(chosen: Indices, course: Course, called: str = "") -> Maker:
        x = torch.from_numpy(recognizer.places([data.sequences[i] for i in chosen]))
        y = torch.from_numpy(labels[chosen])
        makers.append(Maker(recognizer, x, y, course, called=called, **options))
        return makers[-1]

    whole = maker(fold.train, course)
    least = max(whole.select.least, 1)
    curve: tuple[Point, ...] = ()
    met = None
    target = 0
    budgets: tuple[int, ...] = ()
    if rates := several(sparsity, keep):
        budgets = budgets_of(whole.connections, rates)
        _check_enough(budgets[-1], least, whole.connections)
        if whole.course.method == BY_LAYER:
            raise TrellisError(f"nested networks are consistent, and {BY_LAYER!r} is not")
    elif at_least is None:
        target = exact_budget(whole.connections, sparsity, keep)
        _check_enough(target, least, whole.connections)
    if place is not None:
        check_begun(place, whole.about)
    if at_least is not None:
        alike = replace(
            course, mirror=False, augmentation=whole.course.augmentation
        )  # mirrored or not, as decided for all training recordings
        learn, judge = held_out(labels, fold.train, seed)
        trial = maker(learn, alike, "search: ")
        with _rungs(trial, runner, seed) as rungs:
            target, curve, met = _searched(rungs, data, labels, judge, at_least, least)
    dense = whole.train([seed])
    nested = whole.nested(dense, seed, budgets) if budgets else None
    if nested is None:
        small = whole.shrink(dense, [seed], [target])
    else:
        small, target = _stacked(nested, 0, whole.device), budgets[0]
    [kept] = small.kept
    loss = float(losses(whole.forward, small.weights, whole.x, whole.y))
    facts = {
        "source": data.source,
        "synthetic": data.synthetic,
        "fold": fold.name,
        "recordings": {"train": len(fold.train), "test": len(fold.test)},
        "digest": data.digest,
        "seed": seed,
        "precision": precision,
        "device": torch.device(device).type,
        "hardware": hardware(torch.device(device)),
        "versions": versions(),
        "mirror": None if whole.mirror is None else whole.mirror.why,
        **dict(about or {}),
    }
    model = recognizer.model.to("cpu")
    suited = whole.course.to_dict()
    recipe = suited["recipe"]
    large = _recognizer(recognizer, model, {n: w[:1] for n, w in dense.items()}, None)
    large = large.after(
        step="train", recipe=recipe, augmentation=suited["augmentation"],
        seconds=round(whole.took[_DENSE], 1), metrics=metrics(large, data, fold), **facts,
    )  # fmt: skip
    little = _recognizer(recognizer, model, small.weights, small.masks)
    best = max((point.accuracy for point in curve), default=None)
    little = little.after(
        step="shrink", course=suited, recipe=recipe, budget=target, kept=kept,
        total=whole.connections, at_least=at_least, met=met, best=best, loss=round(loss, 4),
        teachers=int(whole.course.distills(target, whole.connections)),
        seconds=round(sum(sum(each.took.values()) for each in makers), 1),  # including a search
        metrics=metrics(little, data, fold), **facts,
        **({} if nested is None else _measured(nested, recognizer, model, data, fold)),
    )  # fmt: skip
    return Outcome(large, little, kept, target, whole.connections, curve, at_least, met, nested)


def _stacked(nested: Nested, place: int, device: torch.device) -> Small:
    """Return a stack of one of the nested networks."""
    masks = nested.masks[place]
    weights = {name: weight * masks[name] for name, weight in nested.weights.items()}
    both = weights | dict(nested.others[place])
    return Small(*(
        {name: value[None].to(device) for name, value in each.items()} for each in (both, masks)
    ))  # fmt: skip


def _measured(
    nested: Nested, recognizer: Recognizer, model: GCN, data: Skeletons, fold: Fold
) -> dict[str, Any]:
    """Return the sizes and metrics of nested networks, for a history."""
    rates = []
    for place, kept in enumerate(nested.budgets):
        small = _stacked(nested, place, torch.device("cpu"))
        found = metrics(_recognizer(recognizer, model, small.weights, small.masks), data, fold)
        rates.append({"kept": kept, "asked": place in nested.stops, "metrics": found})
    return {"asked": list(nested.asked), "rates": rates}


def _check_enough(target: int, least: int, total: int) -> None:
    """Raise if a budget may be too small for a path to every class."""
    if target < least:
        enough = math.floor(1e6 * (1 - least / total)) / 1e6
        raise TrellisError(
            f"{target:,} of {total:,} connections may not be enough for a path to every class "
            f"after gradual pruning; keep {least:,} or more (a sparsity of {enough:g} or less)"
        )


class _Rungs:
    """Make the networks of a search, here or with a runner.

    A worker makes a network in a scratch folder, and returns its checkpoints. This process puts
    them into the run's folder, and continues from them: they are at the end of their phases.
    """

    def __init__(self, trial: Maker, seed: int, cells: Cells | None, together: int) -> None:
        self.trial, self.seed, self.cells, self.together = trial, seed, cells, together
        self.dense = trial.train([seed])
        self.kept: dict[int, int] = {}
        self._shared: dict[str, Any] = {}

    def made(self, budgets: list[int]) -> Small:
        """Return networks with these budgets."""
        if self.cells is None:
            name = f"{budgets[0]}-{budgets[-1]}" if len(budgets) > 1 else str(budgets[0])
            small = self.trial.shrink(self.dense, [self.seed], budgets, name=name)
        else:
            self._begun_elsewhere(self.cells, budgets)
            small = Small.joined([
                self.trial.shrink(self.dense, [self.seed], [budget], name=str(budget))
                for budget in budgets
            ])  # fmt: skip
        self.kept.update(zip(budgets, small.kept, strict=True))
        return small

    def _begun_elsewhere(self, cells: Cells, budgets: list[int]) -> None:
        folder = self.trial.folder
        assert folder is not None
        waiting = [budget for budget in budgets if not self.trial.file(f"tuning {budget}").exists()]
        self.trial.begin(self.dense, [self.seed], waiting)
        for path in self.trial.begun():
            if path.name not in self._shared:
                self._shared[path.name] = cells.share(np.fromfile(path, np.uint8))
        names = list(self._shared)
        handles = [self._shared[name] for name in names]
        begun = [cells.submit((budget, self.seed, names), *handles) for budget in waiting]
        for future in as_completed(begun):
            for name, content in future.result().items():
                with replacing(folder / name) as [draft]:
                    content.tofile(draft)


class RungCell:
    """Make networks of a search in a worker."""

    def __init__(self, known: Mapping[str, str], *given: Any, **options: Any) -> None:
        check_versions(known)
        self.given, self.options = given, options

    def __call__(
        self, job: tuple[int, int, Sequence[str]], *files: NDArray[np.uint8]
    ) -> dict[str, NDArray[np.uint8]]:
        """Return the checkpoints of a network, by name; ``files`` are those that it begins with."""
        budget, seed, names = job
        with tempfile.TemporaryDirectory() as path:
            folder = Path(path)
            for name, content in zip(names, files, strict=True):
                content.tofile(folder / name)
            maker = Maker(*self.given, folder=folder, **self.options)
            maker.shrink(maker.train([seed]), [seed], [budget], name=str(budget))
            made = [each for each in folder.iterdir() if each.name not in names]
            return {each.name: np.fromfile(each, np.uint8) for each in made}


@contextmanager
def _rungs(trial: Maker, runner: Runner | None, seed: int) -> Iterator[_Rungs]:
    if runner is None:
        yield _Rungs(trial, seed, None, 1)
        return
    start = partial(
        RungCell, device=trial.device.type, precision=trial.precision, about=trial.given,
        called=trial.called,
    )  # fmt: skip
    recognizer = replace(trial.recognizer, model=deepcopy(trial.recognizer.model).cpu())
    given = (versions(), recognizer, trial.x.cpu(), trial.y.cpu(), trial.asked)
    with runner.cells(start, *given) as cells:
        yield _Rungs(trial, seed, cells, runner.together)


def _searched(
    rungs: _Rungs,
    data: Skeletons,
    labels: Indices,
    judge: Indices,
    at_least: float,
    least: int,
) -> tuple[int, tuple[Point, ...], bool]:
    """Return the smallest budget that reaches an accuracy, all networks, and whether it does.

    If no network reaches it, the budget is that of the most accurate one.
    """
    trial = rungs.trial
    places = trial.recognizer.places([data.sequences[i] for i in judge])
    x = torch.from_numpy(places).to(trial.device)
    y = torch.from_numpy(labels[judge]).to(trial.device)

    def measure(budgets: list[int]) -> list[float]:
        return _shares_right(trial.forward, rungs.made(budgets).weights, x, y)

    total = trial.connections
    together = _TOGETHER[trial.device.type]
    target, found = smallest(ladder(total, least), measure, at_least, together, rungs.together)
    curve = tuple(
        Point(budget, rungs.kept[budget], total, found[budget])
        for budget in sorted(found, reverse=True)
    )
    if target is not None:
        return target, curve, True
    best = max(curve, key=lambda point: (point.accuracy, -point.budget))
    return best.budget, curve, False


def _shares_right(forward: Forward, weights: Weights, x: Tensor, y: Tensor) -> list[float]:
    """Return the accuracies of networks, in float64, so that 9 of 10 equals 0.9."""
    hits = (predictions(forward, weights, x) == y).sum(1)
    return [right / len(y) for right in hits.tolist()]


def _recognizer(
    like: Recognizer, model: GCN, weights: Weights, masks: Mapping[str, Tensor] | None
) -> Recognizer:
    own = GCN(**model.sizes)
    unstack({name: weight.cpu() for name, weight in weights.items()}, [own])
    if masks is not None:
        Masks({name: mask[0].cpu() for name, mask in masks.items()}).apply(own)
    return replace(like, model=own)
