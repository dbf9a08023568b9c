"""From recordings to a small recogniser: everything that ``trellis shrink`` does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from ...errors import TrellisError
from ...masks import Masks
from ...select.budget import budget as exact_budget
from ...train import Forward, Weights, losses, predictions, unstack
from ...train.provenance import hardware, versions
from ..fitting import metrics
from ..gcn import GCN
from ..recogniser import Recogniser
from ..skeletons import Fold, Indices, Skeletons
from .asked import accuracy_of, as_json, check_begun, device_of, folder_of, seed_of
from .course import Course
from .maker import Maker, Watch
from .search import Point, held_out, ladder, smallest
from .small import Small

_DENSE = "training"  # the phase of the dense networks
_TOGETHER = {"cpu": 1, "cuda": 32}  # networks that train as fast as one


@dataclass(frozen=True, eq=False)
class Outcome:
    """A ``small`` recogniser and the ``dense`` one it was made of; ``curve`` is what a search
    measured, largest network first. ``met`` is whether the small one held what was asked of it
    on the recordings held out; None where nothing was. The small one has ``kept`` of ``total``
    connections: ``budget`` was asked for, and fewer are kept where no more could live."""

    dense: Recogniser
    small: Recogniser
    kept: int
    budget: int
    total: int
    curve: tuple[Point, ...] = ()
    at_least: float | None = None
    met: bool | None = None


def shrink(
    recogniser: Recogniser,
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
    """Train, prune gradually and tune networks like an untrained ``recogniser``'s on a fold.

    Give ``sparsity`` or ``keep``; or ``at_least``, an accuracy on a quarter of the training
    recordings, held out: then the smallest network that has it is searched for, and one of that
    size is made from all training recordings. Test recordings are looked at when all is done.

    With ``folder``, one that is there, a run that was killed goes on by the same call; a call that
    asks for anything else is refused (`trellis.train.checkpoint.Another`).
    """
    if sum(given is not None for given in (sparsity, keep, at_least)) != 1:
        raise TrellisError(
            "give one of sparsity (the fraction removed, such as 0.999), keep (how many "
            f"connections stay) and at_least (an accuracy to hold, such as 0.9); got "
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
    labels = recogniser.labels(data)
    makers: list[Maker] = []

    def maker(chosen: Indices, course: Course, called: str = "") -> Maker:
        x = torch.from_numpy(recogniser.places([data.sequences[i] for i in chosen]))
        y = torch.from_numpy(labels[chosen])
        makers.append(Maker(recogniser, x, y, course, called=called, **options))
        return makers[-1]

    whole = maker(fold.train, course)
    least = max(whole.choose.least, 1)
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
        )  # as all the recordings have told
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
    model = recogniser.model.to("cpu")
    suited = whole.course.to_dict()  # to so many recordings
    recipe = suited["recipe"]
    large = _recogniser(recogniser, model, {n: w[:1] for n, w in dense.items()}, None)
    large = large.after(
        step="train", recipe=recipe, augmentation=suited["augmentation"],
        seconds=round(whole.took[_DENSE], 1), metrics=metrics(large, data, fold), **facts,
    )  # fmt: skip
    little = _recogniser(recogniser, model, small.weights, small.masks)
    best = max((point.accuracy for point in curve), default=None)
    little = little.after(
        step="shrink", course=suited, recipe=recipe, budget=target, kept=kept,
        total=whole.connections, at_least=at_least, met=met, best=best, loss=round(loss, 4),
        teachers=whole.course.teachers_at(target, whole.connections),
        seconds=round(sum(sum(each.took.values()) for each in makers), 1),  # of a search, too
        metrics=metrics(little, data, fold), **facts,
    )  # fmt: skip
    return Outcome(large, little, kept, target, whole.connections, curve, at_least, met)


def _check_enough(target: int, least: int, total: int) -> None:
    """Refuse a budget that may not do, before anybody has waited."""
    if target < least:
        enough = math.floor(1e6 * (1 - least / total)) / 1e6
        raise TrellisError(
            f"{target:,} connections may not be enough, of {total:,}, for a path to every class "
            f"after gradual pruning: keep {least:,} or more (a sparsity of {enough:g} or less)"
        )


def _made(maker: Maker, target: int, seed: int) -> tuple[Weights, Small]:
    seeds = maker.seeds(seed)
    dense = maker.train(seeds)
    return dense, maker.shrink(dense, seeds, [target])


def _searched(
    trial: Maker,
    data: Skeletons,
    labels: Indices,
    judge: Indices,
    at_least: float,
    least: int,
    seed: int,
) -> tuple[int, tuple[Point, ...], bool]:
    """The budget of the smallest network that holds ``at_least`` on the recordings to ``judge``
    by, or else of the best."""
    seeds = trial.seeds(seed)
    dense = trial.train(seeds)
    places = trial.recogniser.places([data.sequences[i] for i in judge])
    x = torch.from_numpy(places).to(trial.device)
    y = torch.from_numpy(labels[judge]).to(trial.device)

    kept: dict[int, int] = {}

    def measure(budgets: list[int]) -> list[float]:
        name = f"{budgets[0]}-{budgets[-1]}" if len(budgets) > 1 else str(budgets[0])
        small = trial.shrink(dense, seeds, budgets, name=name)
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
    """The share of recordings that each network names: 9 of 10 are 0.9, as who asks for that has
    it, which they are not in single precision."""
    hits = (predictions(forward, weights, x) == y).sum(1)
    return [right / len(y) for right in hits.tolist()]


def _recogniser(
    like: Recogniser, model: GCN, weights: Weights, masks: Mapping[str, Tensor] | None
) -> Recogniser:
    own = GCN(**model.sizes)
    unstack({name: weight.cpu() for name, weight in weights.items()}, [own])
    if masks is not None:
        Masks({name: mask[0].cpu() for name, mask in masks.items()}).apply(own)
    return replace(like, model=own)
