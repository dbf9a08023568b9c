"""`trellis.shrink`: train, prune gradually and fine-tune any model, or search the smallest one."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ...errors import TrellisError
from ...files import locked, remove_drafts, replacing
from ...graph.inputs import refuse_meta
from ...masks import Mask, Masks, masks_of
from ...methods.method import Method, MethodName
from ...methods.prune import DEFAULT
from ...methods.saliency import Saliency
from ...paths.audit import Audit, audit
from ...saving import load, save
from ...saving.folder import is_saved, read_folder
from ...saving.nested import Nested
from ..checkpoint import EVERY, OtherSettings
from ..schedule import differing
from ..search import ladder, smallest
from ..trainer import arithmetic
from .course import Course
from .loop import Run, copied, masks_in, plain_state
from .nested import Together
from .prepare import (
    Prepared,
    alone,
    check_clip,
    check_feasible,
    check_options,
    check_saliency,
    check_seconds,
    check_target,
    device_of,
    precision_of,
    prepared,
    whole,
)  # fmt: skip
from .progress import watch
from .result import Point, Rate, Shrunk
from .state import random_state, read_state, restore_random, seed_everything
from .task import Loss, Score, Task, check_loader

MODEL, RESULT = "model", "result.json"  # in the folder of a run
_CHECKPOINTS = ".checkpoint*.safetensors"
_NEWER = {"code"}  # settings that runs of earlier releases did not store
_LEAST = 10_000  # the smallest network of a search keeps 1 / _LEAST of the connections


def shrink(
    model: nn.Module,
    train_loader: Iterable[Any],
    *,
    sparsity: float | Sequence[float] | None = None,
    keep: int | Sequence[int] | None = None,
    at_least: float | None = None,
    validation: Iterable[Any] | None = None,
    loss: Loss | None = None,
    score: Score | None = None,
    optimizer: Callable[[list[dict[str, Any]]], Optimizer] | None = None,
    scheduler: Callable[..., Any] | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    trained: bool | None = None,
    device: torch.device | str = "auto",
    precision: str | None = None,
    clip: float | None = None,
    channels_last: bool = False,
    compile: bool = False,
    seed: int = 0,
    out: str | PathLike[str] | None = None,
    checkpoint_every: float = EVERY,
    progress: bool = True,
    split: Sequence[float] = Course.split,
    curve: str = Course.curve,
    updates: int = Course.updates,
    distill: float | None = Course.distill,
    temperature: float = Course.temperature,
    waypoints: bool = Course.waypoint,
    quantize: str | None = Course.quantize,
    example_inputs: Any = None,
    method: MethodName | str | Method = DEFAULT,
    saliency: Saliency | None = None,
    consistent: bool | None = True,
    cover_outputs: bool = True,
    cover_layers: bool = True,
    ignore: str | Collection[str] = (),
    **pruning: Any,
) -> Shrunk:
    """Train a model, prune it gradually and fine-tune it; every kept connection is live.

    Give one of ``sparsity``, ``keep`` and ``at_least``. The model is trained and masked in place.

    Several rates make nested networks with shared weights, each inside the next larger one. They
    are pruned one after another and then trained together. The model becomes the largest.
    ``result.nested.apply(model, sparsity=...)`` makes it any other, also of a rate between those
    asked for, and `trellis.load` takes any of them out of a folder.

    Args:
        model: Any module that can be traced. If it is trained already, it is only pruned and
            fine-tuned.
        train_loader: An iterable of batches that can be iterated over again and again: a
            `DataLoader`, or a list. A batch is ``(inputs, targets)``, a dictionary of keyword
            inputs with the targets under ``labels``, or a tensor. Inputs are a tensor, a tuple or
            a dictionary.
        sparsity: The fraction of connections to remove, such as 0.99, or several fractions, such
            as (0.9, 0.99, 0.999).
        keep: The number of connections to keep, or several numbers.
        at_least: Search for the smallest network with this score on ``validation``. The dense
            network is trained once. Each network tried is then pruned and fine-tuned.
        validation: Batches for the score.
        loss: A function ``(outputs, targets)``, or ``(model, batch)``: the first parameter is
            then called ``model``, or the second ``batch``. By default the loss that the model
            returns for a dictionary, else cross entropy for integer targets and mean squared error
            for float targets.
        score: A function ``(model, validation) -> float``; larger is better. By default the
            accuracy where targets are classes, else the negative loss.
        optimizer: A function from parameters to an optimizer, such as
            ``lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)``. The default is AdamW.
        scheduler: A function ``(optimizer, steps)`` to a scheduler, which is called after every
            step. By default the rate rises at first, stays while the network is trained and pruned,
            and falls to 0 along a cosine while it is fine-tuned.
        epochs: The length of the whole run. The default makes about 4,000 steps, from 10 to 300
            epochs; half as many again for each further rate.
        steps: The number of optimizer steps, in place of ``epochs``.
        trained: Whether the model is trained already. By default it is, if the loss on the first
            batches is below half that of a constant prediction.
        device: "auto" takes a GPU if there is one; or "cpu", "cuda", "cuda:1".
        precision: "fp32", "tf32", or autocast to "bf16" or "fp16" (GPUs only).
        clip: The largest norm of the gradient (default: any).
        channels_last: Whether to store images with channels last.
        compile: Whether to compile the model with `torch.compile`.
        seed: The seed of batches, dropout and pruning. The model's own weights are as given.
        out: A folder for checkpoints and the result. The same call continues a run that was
            killed, with the same result; a finished run is returned. Another call raises an error.
        checkpoint_every: Seconds between two checkpoints.
        progress: Whether to show progress on stderr.
        split: The shares of the steps for dense training, pruning and fine-tuning. A trained model
            needs no dense training.
        curve: "cubic", "geometric" or "linear" (`trellis.Schedule`).
        updates: The number of mask updates, at most.
        distill: The share of the loss that compares outputs with those of the dense network,
            while it is pruned and fine-tuned; 0 for none. By default only networks below 1 % are
            distilled: after the first waypoint, half of the loss compares with the network there.
            It needs targets that are classes, or the default loss. While several rates are
            trained together, the largest network teaches the others (default: half of the loss).
        temperature: The temperature of that comparison.
        waypoints: Whether networks below 1 % of the connections are first pruned and fine-tuned at
            1 %, and those below 0.1 % at 0.1 % as well.
        quantize: "int8" fine-tunes for `trellis.export_c` with ``arithmetic="int8"``: in the last
            phase, forward passes round weights and activations (quantisation-aware training). A
            single network then gets the rounded weights. Scores are those of floats. Default: no
            rounding.
        example_inputs: Inputs to trace the model with (default: those of the first batch).
        method: As for `trellis.prune`.
        saliency: As for `trellis.Pruner`. Default: "taylor" if every weight gets a gradient, else
            "magnitude".
        consistent: As for `trellis.Pruner`.
        cover_outputs: As for `trellis.prune`.
        cover_layers: As for `trellis.prune`.
        ignore: As for `trellis.prune`.
        **pruning: Further options of `trellis.Pruner`: those of the method, and ``regrow``.

    Returns:
        The model, its masks, their audit, the history, and a ``report`` method.

    Raises:
        TrellisError: An argument is invalid, the loader is empty or cannot be iterated over twice,
            batches do not fit the model, the loss is not finite, or no consistent network has so
            few connections. This is checked before anything is trained.
        OtherSettings: The folder holds a run with other settings.

    Example:
        >>> import trellis
        >>> _ = torch.manual_seed(0)
        >>> x = torch.randn(256, 8)
        >>> y = (x[:, 0] * x[:, 1] > 0).long()
        >>> model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
        >>> batches = list(zip(x.split(32), y.split(32)))
        >>> result = trellis.shrink(model, batches, sparsity=0.9, epochs=30, progress=False)
        >>> result.masks.kept, result.audit.live_fraction
        (64, 1.0)
        >>> [row["step"] for row in result.history][-1]
        240
    """
    if not isinstance(model, nn.Module):
        raise TrellisError(f"expected a torch.nn.Module, got {model!r:.60}")
    check_options(pruning, method, shrink)
    check_saliency(saliency)
    if trained not in (None, True, False):
        raise TrellisError(f"expected trained to be True, False or None, got {trained!r:.60}")
    check_seconds(checkpoint_every)
    sparsity, keep = alone("sparsity", sparsity), alone("keep", keep)
    check_target(sparsity, keep, at_least, validation)
    check_loader("train_loader", train_loader)
    if validation is not None and score is None:
        check_loader("validation", validation)
    course = Course(
        split=tuple(split) if isinstance(split, Sequence) else split,  # type: ignore[arg-type]
        curve=curve, updates=updates, distill=distill, temperature=temperature, waypoint=waypoints,
        quantize=quantize,
    )  # fmt: skip
    place = device_of(device)
    precision = precision_of(precision, place)
    seed = whole("seed", seed, 0)
    check_clip(clip)
    shared = {
        "method": method, "saliency": saliency, "consistent": consistent, "seed": seed,
        "cover_outputs": cover_outputs, "cover_layers": cover_layers, "ignore": ignore,
    } | pruning  # fmt: skip
    folder = None if out is None else Path(out)
    before, was = random_state(place), model.training
    screen = watch(progress)
    try:
        with arithmetic("fp32" if precision == "fp32" else "tf32"), _held(folder):
            seed_everything(seed)
            refuse_meta(model)
            model.to(place)
            if channels_last:
                model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            task = Task(loss, score, place, channels_last=channels_last)
            ready = prepared(
                model, train_loader, validation, task, course, shared, example_inputs,
                target=(sparsity, keep, at_least), epochs=epochs, steps=steps, trained=trained,
                optimizer=optimizer, scheduler=scheduler, precision=precision, clip=clip,
                compiles=compile, seed=seed, folder=folder, seconds=checkpoint_every, screen=screen,
            )  # fmt: skip
            return _done(ready)
    finally:
        model.train(was)
        screen.close()
        restore_random(before, place)


def _done(ready: Prepared) -> Shrunk:
    """Return the result: that of a finished run in the folder, or a new one."""
    folder = ready.setup.folder
    if folder is not None:
        stored = _stored(folder)
        if stored is not None:
            _check_same(folder, stored["settings"], ready.setup.settings)
            ended = time.strftime("%Y-%m-%d %H:%M", time.localtime(stored["ended"]))
            ready.setup.watch.say(
                f"{folder} holds the run that ended at {ended}; its result is returned. Data and "
                "weights are not compared: give another folder if they have changed"
            )
            return _read(ready, folder, stored)
        _check_checkpoints(ready, folder)
        if is_saved(folder / MODEL) and not list(folder.glob(_CHECKPOINTS)):
            raise TrellisError(
                f"{str(folder / MODEL)!r} holds a model that no run here has written; give another "
                "folder"
            )
    make = _searched if ready.at_least is not None else _nested if ready.asked else _single
    found = make(ready)
    if folder is not None:
        _write(ready, folder, found)
    return found


def _single(ready: Prepared) -> Shrunk:
    phases = ready.course.phases(ready.steps, ready.target, ready.net.total, trained=ready.trained)
    dense = ready.setup.score(ready.net.model) if ready.trained else None
    run = Run(ready.setup, ready.net, phases)
    run.train()
    return _result(ready, run, run.history, dense, run.seconds)


def _nested(ready: Prepared) -> Shrunk:
    setup, net = ready.setup, ready.net
    *phases, last = ready.course.nested(ready.steps, ready.asked, net.total, trained=ready.trained)
    dense = setup.score(net.model) if ready.trained else None
    run = Run(setup, net, phases)
    run.train()
    ended = [row["score"] for row in run.history if row["phase"] == "dense" and row["score"]]
    both = Together(
        setup, net, [last], "nested", stops=tuple(run.marked), asked=ready.asked
    )  # fmt: skip
    both.train()
    made, rates = both.nested()
    history = [*run.history, *({**row, "step": run.step + row["step"]} for row in both.history)]
    return Shrunk(
        net.model, _largest(net.model, made), _audited(ready), history, rates[0].score,
        ended[-1] if ended else dense, seconds=run.seconds + both.seconds, nested=made, rates=rates,
    )  # fmt: skip


def _largest(model: nn.Module, made: Nested) -> Masks:
    return Masks(dict(masks_of(model)), budget=made.asked[0])


def _result(
    ready: Prepared, run: Run, history: list[dict[str, Any]], dense: float | None, seconds: float
) -> Shrunk:
    ended = [row["score"] for row in history if row["phase"] == "dense" and row["score"]]
    return Shrunk(
        ready.net.model, masks_in(run), _audited(ready), history, run.score,
        ended[-1] if ended else dense, seconds=seconds,
    )  # fmt: skip


def _audited(ready: Prepared) -> Audit:
    """Return the audit of what was pruned: ignored parameters do not count."""
    return audit(ready.net, ignore=ready.setup.pruning["ignore"])


def _searched(ready: Prepared) -> Shrunk:
    setup, net, at_least = ready.setup, ready.net, ready.at_least
    assert at_least is not None
    first = ready.course.phases(ready.steps, None, net.total, trained=ready.trained)
    dense = Run(setup, net, first, "dense")
    if first:
        dense.train()
    start = setup.score(net.model)
    assert start is not None
    if start < at_least:
        setup.watch.say(f"before pruning, the score is {start:.4g}, below at_least={at_least:g}")
    done = sum(phase.steps for phase in first)
    teacher = copied(net).model.eval().requires_grad_(False)
    tried: dict[int, Run] = {}
    points: dict[int, Point] = {}

    def measure(budgets: list[int]) -> list[float]:
        return [_tried(ready, budget, teacher, done, tried, points) for budget in budgets]

    rungs = ladder(net.total, max(net.total // _LEAST, 1))
    target, scores = smallest(rungs, measure, at_least, together=1)
    met = target is not None
    if target is None:
        able = {budget: value for budget, value in scores.items() if budget in tried}
        if not able:
            raise TrellisError("no network of the sizes tried is consistent; give sparsity=")
        target = max(able, key=lambda budget: (able[budget], -budget))
    best = tried[target]
    history = [*dense.history, *best.history]
    seconds = dense.seconds + sum(run.seconds for run in tried.values())
    masks = masks_in(best)
    state = plain_state(best.model)
    if any(isinstance(module, Mask) for module in net.model.modules()):
        masks_of(net.model).bake(net.model)
    net.model.load_state_dict(state)
    masks.apply(net.model)
    curve = tuple(points[budget] for budget in sorted(points, reverse=True))
    return Shrunk(
        net.model, masks, _audited(ready), history, best.score, start, curve, met, seconds
    )


def _tried(
    ready: Prepared, budget: int, teacher: nn.Module, done: int, tried: dict[int, Run],
    points: dict[int, Point],
) -> float:  # fmt: skip
    """Return the score of a network with this budget; -inf if none is consistent."""
    setup, total = ready.setup, ready.net.total
    try:
        check_feasible(copied(ready.net), budget, setup.pruning)
    except TrellisError:
        points[budget] = Point(budget, 0, total, -math.inf)
        return -math.inf
    phases = ready.course.phases(max(ready.steps - done, 2), budget, total, trained=True)
    distills = any(phase.distill for phase in phases) and setup.task.distills()
    run = Run(setup, copied(ready.net), phases, f"keep {budget}", teacher if distills else None)
    run.train()
    tried[budget] = run
    assert run.score is not None
    points[budget] = Point(budget, masks_in(run).kept, total, run.score)
    setup.watch.say(f"{budget:,} connections: score {run.score:.4g}")
    return run.score


def _check_checkpoints(ready: Prepared, folder: Path) -> None:
    for path in sorted(folder.glob(_CHECKPOINTS)):
        _check_same(folder, read_state(path)["settings"], ready.setup.settings)


def _write(ready: Prepared, folder: Path, found: Shrunk) -> None:
    """Write the model, then the rest of the result, then remove the checkpoints."""
    save(found.model, folder / MODEL, nested=found.nested)
    told = {
        "settings": ready.setup.settings,
        "budget": found.masks.budget,
        "history": found.history,
        "score": found.score,
        "dense_score": found.dense_score,
        "met": found.met,
        "seconds": found.seconds,
        "search": [
            [p.budget, p.kept, p.total, None if p.score == -math.inf else p.score]
            for p in found.search
        ],
        "rates": [dataclasses.asdict(rate) for rate in found.rates],
    }
    with replacing(folder / RESULT) as [draft]:
        draft.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    for path in folder.glob(_CHECKPOINTS):
        path.unlink()
    remove_drafts(folder, _CHECKPOINTS[1:], RESULT)


def _read(ready: Prepared, folder: Path, told: Mapping[str, Any]) -> Shrunk:
    model = ready.net.model
    load(folder / MODEL, into=model)
    masks = Masks(dict(masks_of(model)), budget=told["budget"])
    search = tuple(
        Point(budget, count, total, -math.inf if score is None else score)
        for budget, count, total, score in told["search"]
    )
    return Shrunk(
        model, masks, _audited(ready), told["history"], told["score"], told["dense_score"],
        search, told["met"], told["seconds"], read_folder(folder / MODEL).nested,
        tuple(Rate(**rate) for rate in told.get("rates", ())),
    )  # fmt: skip


# The folder of a run.


@contextmanager
def _held(folder: Path | None) -> Iterator[None]:
    """Create and lock the folder."""
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrellisError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from error
    with locked(folder):
        yield


def _stored(folder: Path) -> dict[str, Any] | None:
    path = folder / RESULT
    if not path.exists() or not is_saved(folder / MODEL):
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found["settings"], found["history"], found["budget"]
        found["ended"] = path.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrellisError(
            f"{str(path)!r} is not sound: {error}; remove the folder to train again"
        ) from error
    return found


def _check_same(folder: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    known = {name: value for name, value in wanted.items() if name in stored or name not in _NEWER}
    if differs := differing(stored, known):
        raise OtherSettings(folder, differs)
