"""Shrink a recognizer: from recordings to a small network."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...errors import TrellisError
from ...files import intact
from ...masks import Masks
from ...methods.budget import as_written
from ...methods.budget import budget as exact_budget
from ...schema import CheckpointHeader, fitted, parsed
from ...training import Forward, Weights, losses, predictions, unstack
from ...training.checkpoint import HEADER, OtherSettings, hardware, versions
from ...training.schedule import differing
from ..data.dataset import Fold, Indices, Skeletons
from ..model.fitting import metrics
from ..model.gcn import GCN
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


_STEPS = 4  # budgets of a search for every factor of ten
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


def ladder(total: int, least: int) -> list[int]:
    """Return the budgets of a search, from ``total`` down to ``least``: four per factor of ten.

    >>> ladder(1000, 90)
    [1000, 562, 316, 177, 100]
    """
    count = math.floor(math.log10(total / least) * _STEPS + 1e-9) + 1
    return [math.floor(total / 10 ** (i / _STEPS)) for i in range(count)]


def smallest(
    rungs: Sequence[int],
    measure: Callable[[list[int]], list[float]],
    at_least: float,
    together: int,
) -> tuple[int | None, dict[int, float]]:
    """Return the smallest budget that reaches an accuracy, and all accuracies measured.

    If all budgets can be measured together, they are, and the smallest that reaches the accuracy is
    taken. Otherwise the search is a bisection, which assumes that larger networks are not worse.

    Args:
        rungs: Budgets, largest first.
        measure: Returns the accuracies of networks with the given budgets.
        at_least: The accuracy to reach.
        together: The number of networks that train as fast as one.

    >>> smallest([100, 50, 25, 12], lambda each: [b / 50 for b in each], 0.5, together=1)
    (25, {50: 1.0, 25: 0.5, 12: 0.24})
    """
    found: dict[int, float] = {}

    def tried(budgets: list[int]) -> list[bool]:
        fresh = [budget for budget in budgets if budget not in found]
        for i in range(0, len(fresh), together):
            part = fresh[i : i + together]
            found.update(zip(part, measure(part), strict=True))
        return [found[budget] >= at_least for budget in budgets]

    if together >= len(rungs):
        holds = [budget for budget, held in zip(rungs, tried(list(rungs)), strict=True) if held]
        return (min(holds) if holds else None), found
    low, high = -1, len(rungs)  # rungs[low] holds, rungs[high] does not
    while high - low > 1:
        middle = (low + high) // 2
        if tried([rungs[middle]])[0]:
            low = middle
        else:
            high = middle
    return (rungs[low] if low >= 0 else None), found


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
        small: The small recognizer that was made of it.
        kept: The connections of the small one; fewer than the budget if no more could be live.
        budget: The budget.
        total: The connections of the dense one.
        curve: The networks of a search, largest first.
        at_least: The accuracy that was searched for.
        met: Whether the search reached it on the recordings held out; None without a search.
    """

    dense: Recognizer
    small: Recognizer
    kept: int
    budget: int
    total: int
    curve: tuple[Point, ...] = ()
    at_least: float | None = None
    met: bool | None = None


def shrink(
    recognizer: Recognizer,
    data: Skeletons,
    fold: Fold,
    course: Course,
    *,
    sparsity: float | None = None,
    keep: int | None = None,
    at_least: float | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    precision: str = "fp32",
    folder: str | PathLike[str] | None = None,
    about: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Train, prune gradually and fine-tune a network on a fold.

    Give one of ``sparsity``, ``keep`` and ``at_least``. With ``at_least``, a quarter of the
    training recordings is held out, and the smallest network with that accuracy on them is searched
    for. A network of its size is then made from all training recordings. Test recordings are used
    only at the end, for the metrics.

    Args:
        recognizer: An untrained recognizer (`Recognizer.fresh`).
        data: The recordings.
        fold: Which of them to train and to test on.
        course: The settings (`course_named`).
        sparsity: The fraction of connections to remove.
        keep: The number of connections to keep.
        at_least: The accuracy to reach.
        seed: The seed of weights, batches, noise and augmentation.
        device: "cpu", "cuda" or "cuda:N".
        precision: "fp32", "tf32" or "bf16".
        folder: An existing folder for checkpoints. The same call then continues a run that was
            killed, with the same result.
        about: Further facts for the history, which must be the same in order to continue.
        watch: Called after every epoch with the phase's name and its training.

    Returns:
        The dense and the small recognizer.

    Raises:
        TrellisError: An argument is invalid, or training diverged.
        OtherSettings: The folder holds checkpoints of a run with other settings.
    """
    if sum(given is not None for given in (sparsity, keep, at_least)) != 1:
        raise TrellisError(
            "give one of sparsity (the fraction removed, such as 0.999), keep (a number of "
            f"connections) and at_least (an accuracy, such as 0.9); got "
            f"sparsity={sparsity!r}, keep={keep!r}, at_least={at_least!r}"
        )
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
    if at_least is None:
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
        target, curve, met = _searched(trial, data, labels, judge, at_least, least, seed)
    dense, small = _made(whole, target, seed)
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
    )  # fmt: skip
    return Outcome(large, little, kept, target, whole.connections, curve, at_least, met)


def _check_enough(target: int, least: int, total: int) -> None:
    """Raise if a budget may be too small for a path to every class."""
    if target < least:
        enough = math.floor(1e6 * (1 - least / total)) / 1e6
        raise TrellisError(
            f"{target:,} of {total:,} connections may not be enough for a path to every class "
            f"after gradual pruning; keep {least:,} or more (a sparsity of {enough:g} or less)"
        )


def _made(maker: Maker, target: int, seed: int) -> tuple[Weights, Small]:
    dense = maker.train([seed])
    return dense, maker.shrink(dense, [seed], [target])


def _searched(
    trial: Maker,
    data: Skeletons,
    labels: Indices,
    judge: Indices,
    at_least: float,
    least: int,
    seed: int,
) -> tuple[int, tuple[Point, ...], bool]:
    """Return the smallest budget that reaches an accuracy, all networks, and whether it does.

    If no network reaches it, the budget is that of the most accurate one.
    """
    dense = trial.train([seed])
    places = trial.recognizer.places([data.sequences[i] for i in judge])
    x = torch.from_numpy(places).to(trial.device)
    y = torch.from_numpy(labels[judge]).to(trial.device)

    kept: dict[int, int] = {}

    def measure(budgets: list[int]) -> list[float]:
        name = f"{budgets[0]}-{budgets[-1]}" if len(budgets) > 1 else str(budgets[0])
        small = trial.shrink(dense, [seed], budgets, name=name)
        kept.update(zip(budgets, small.kept, strict=True))
        return _shares_right(trial.forward, small.weights, x, y)

    rungs = ladder(trial.connections, least)
    together = _TOGETHER[trial.device.type]
    target, found = smallest(rungs, measure, at_least, together)
    curve = tuple(
        Point(budget, kept[budget], trial.connections, found[budget])
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
