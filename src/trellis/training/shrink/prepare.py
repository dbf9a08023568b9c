"""The arguments of `trellis.shrink`: defaults, and checks before anything is trained."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from ...errors import TrellisError
from ...files import digest
from ...graph.trellis import Trellis, matching, trace
from ...masks import masks_of
from ...methods.budget import budget
from ...methods.method import method_class, options_of_class
from ...methods.prune import Options
from ...methods.saliency import NAMES
from ...paths.audit import audit
from ..gradients import KINDS, can_gather
from ..pruner import Pruner
from ..schedule import Schedule, options_of
from .course import Course
from .loop import PRECISIONS, Setup, copied, plain_state, without_zeros
from .progress import Watch
from .task import (
    Batch,
    Task,
    check_loss,
    count_batches,
    example_of,
    first_batches,
    known_targets,
)  # fmt: skip

_STEPS, _FEWEST, _MOST = 4000, 10, 300  # default epochs: steps in all, epochs at least and at most


@dataclass(frozen=True, eq=False)
class Prepared:
    """A call of `shrink` whose arguments are checked.

    Args:
        setup: What its runs share.
        net: The trellis of the model.
        course: The settings of the phases.
        steps: The optimizer steps in all.
        target: The budget, the smallest of several; None for a search.
        asked: The budgets of nested networks, largest first; empty for one network.
        at_least: The score to hold; None without a search.
        trained: Whether the model is trained already.
    """

    setup: Setup
    net: Trellis
    course: Course
    steps: int
    target: int | None
    asked: tuple[int, ...]
    at_least: float | None
    trained: bool


def prepared(
    model: nn.Module,
    loader: Iterable[Any],
    validation: Iterable[Any] | None,
    task: Task,
    course: Course,
    pruning: Mapping[str, Any],
    example_inputs: Any,
    *,
    target: tuple[Any, Any, float | None],
    epochs: float | None,
    steps: int | None,
    trained: bool | None,
    optimizer: Callable[[list[dict[str, Any]]], Optimizer] | None,
    scheduler: Callable[..., Any] | None,
    precision: str,
    clip: float | None,
    compiles: bool,
    seed: int,
    folder: Path | None,
    seconds: float,
    screen: Watch,
) -> Prepared:
    """Check everything that can be checked before training."""
    was = model.training
    model.eval()
    try:
        probes, losses = _probed(model, loader, task)
        first = task.read(probes[0])
        example = example_of(first.inputs) if example_inputs is None else example_inputs
        net = trace(model, example)
    finally:
        model.train(was)
    batches = count_batches("train_loader", loader) if steps is None else _length(loader)
    sparsity, keep, at_least = target
    if at_least is not None and at_least > 1 and task.accuracy and task.score_given is None:
        raise TrellisError(
            f"expected at_least to be an accuracy, at most 1, got {at_least!r}; give one such as "
            "0.92"
        )
    rates = several(sparsity, keep)
    total = _steps_of(epochs, steps, batches, max(len(rates), 1))
    pruning = _without_frozen(net, pruning, screen)
    done = trained
    if done is None:
        done = _is_trained(task, losses, [task.read(given) for given in probes])
    if pruning["saliency"] is None:
        pruning = {**pruning, "saliency": "magnitude"}
        ignored = matching(net, options_of(pruning_options(pruning)).ignored)
        wanted = [name for name in net.connections if name not in ignored]
        if _has_gradients(copied(net), wanted, task, probes[0]):
            pruning["saliency"] = "taylor"
    options = options_of(pruning_options(pruning))
    goal = None
    trial = copied(net)
    without_zeros(trial.model, seed)
    asked: tuple[int, ...] = ()
    if rates:
        ignored = matching(net, options.ignored)
        counted = [s for name, s in net.connections.items() if name not in ignored]
        asked = budgets_of(sum(map(math.prod, counted)), rates)
        goal = check_feasible(trial, asked[-1], pruning).plan.target
        _check_nested(options, pruning)
    elif at_least is None:
        goal = check_feasible(trial, keep, pruning, sparsity).plan.target
    _check_masks(net, asked[0] if asked else goal, options.ignored)
    make = _optimizer_of(optimizer, net.total)
    _check_optimizer(make, model)
    timed = None if scheduler is None else _scheduler_of(scheduler)
    named = type(make(copied(net).model)).__name__
    settings = {
        "model": type(model).__name__,
        "sparsity": sparsity if sparsity is None else str(sparsity),
        "keep": list(keep) if isinstance(keep, tuple) else keep,
        "at_least": at_least,
        "steps": total,
        "batches": batches,
        "seed": seed,
        "precision": precision,
        "device": task.device.type,
        "trained": done,
        "course": course.to_dict(),
        "optimizer": _described(make(copied(net).model)),
        "scheduler": None if scheduler is None else _name(scheduler),
        "loss": None if task.given is None else _name(task.given),
        "score": None if task.score_given is None else _name(task.score_given),
        "code": [_code(task.given), _code(task.score_given)],
        "clip": clip,
        "channels_last": task.channels_last,
        "validation": validation is not None,
        "pruning": options.record() | {
            name: value for name, value in pruning.items() if name == "regrow"
        },
        "inputs": net.specs,
        # An untrained model may begin elsewhere: the checkpoint holds its weights.
        "weights": digest(plain_state(model)) if done else _shapes(model),
    }  # fmt: skip
    told: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    setup = Setup(
        task, loader, batches, probes, validation, make, timed, pruning, course, precision, clip,
        compiles, seed, folder, seconds, told, screen,
    )  # fmt: skip
    if validation is not None:
        _check_validation(setup, model)
    screen.say(
        f"{type(model).__name__}: {net.total:,} connections, "
        f"{'trained already' if done else 'not trained yet'}; {total:,} steps "
        f"({total / batches:.3g} epochs), {named}, seed {seed}, {task.device}"
    )
    if asked:
        course.nested(total, asked, net.total, trained=done)  # raises if there are too few steps
    else:
        course.phases(total, goal or net.total, net.total, trained=done)
    return Prepared(setup, net, course, total, goal, asked, at_least, done)


def alone(name: str, given: Any) -> Any:
    """Return the one rate of a sequence of one; anything else as it is.

    >>> alone("sparsity", [0.9]), alone("sparsity", (0.9, 0.99)), alone("keep", 12)
    (0.9, (0.9, 0.99), 12)
    """
    if not isinstance(given, Sequence) or isinstance(given, str):
        return given
    if not given:
        raise TrellisError(f"expected at least one rate, got {name}={given!r}")
    return given[0] if len(given) == 1 else tuple(given)


def several(sparsity: Any, keep: Any) -> list[dict[str, Any]]:
    """Return the rates, as arguments of `budget`, if several were asked for.

    >>> several((0.9, 0.99), None)
    [{'sparsity': 0.9}, {'sparsity': 0.99}]
    >>> several(0.9, None)
    []
    """
    both = {"sparsity": sparsity, "keep": keep}
    return [{name: each} for name, given in both.items() if isinstance(given, tuple)
            for each in given]  # fmt: skip


def budgets_of(total: int, rates: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return the budgets of several rates, largest first.

    >>> budgets_of(1000, [{"sparsity": 0.99}, {"sparsity": 0.9}])
    (100, 10)
    """
    found = sorted({budget(total, **rate) for rate in rates}, reverse=True)
    if len(found) < len(rates):
        raise TrellisError(
            f"expected different rates, got {list(rates)}, which keep {found} of {total:,} "
            "connections; leave out those that keep as many as another"
        )
    return tuple(found)


def _check_nested(options: Options, pruning: Mapping[str, Any]) -> None:
    if not options.closes:
        raise TrellisError(
            "nested networks are consistent; leave out consistent=False, or give one sparsity"
        )
    if pruning.get("regrow"):
        raise TrellisError(
            "regrown connections would not be nested; leave out regrow, or give one sparsity"
        )


def _probed(model: nn.Module, loader: Iterable[Any], task: Task) -> tuple[list[Any], list[float]]:
    """Return the first batches and their losses; raise if they do not fit."""
    probes = first_batches("train_loader", loader)
    task.settle(model, probes[0])
    targets = known_targets(loader)
    if isinstance(loader, list | tuple):
        task.check_targets(loader)
    else:
        task.check_targets(probes if targets is None else [(None, targets)])
    losses = []
    for number, given in enumerate(probes):
        try:
            with torch.set_grad_enabled(number == 0):
                result = task.result(model, task.read(given))
        except TrellisError:
            raise
        except Exception as error:
            reason = (str(error) or type(error).__name__).strip().splitlines()[0]
            raise TrellisError(
                f"the loss of batch {number + 1} of train_loader cannot be computed: "
                f"{type(error).__name__}: {reason:.300}"
            ) from error
        check_loss(result)
        if number == 0 and not result.loss.requires_grad:
            raise TrellisError(
                "the loss has no gradient; compute it from the outputs of the model without "
                "detach(), item() or torch.no_grad(), and unfreeze some parameters"
            )
        losses.append(float(result.loss.detach()))
    return probes, losses


def _check_validation(setup: Setup, model: nn.Module) -> None:
    """Raise if the score cannot be computed."""
    assert setup.validation is not None
    try:
        found = setup.score(model)
        if found is not None and math.isnan(found):
            raise TrellisError("the score on validation is NaN; look for NaN in the data")
        own = setup.task.score_given is not None  # it may read anything
        for given in [] if own else first_batches("validation", setup.validation):
            inputs = setup.task.read(given).inputs
            for value in pytree.tree_leaves((inputs.args, inputs.kwargs)):
                if isinstance(value, torch.Tensor) and bool(value.isnan().any()):
                    raise TrellisError("a batch of validation holds NaN; repair or leave it out")
    except TrellisError:
        raise
    except Exception as error:
        if setup.task.score_given is not None:  # the traceback leads to the user's function
            raise
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise TrellisError(
            f"the score on validation cannot be computed: {type(error).__name__}: {reason:.300}; "
            "give batches like those of train_loader"
        ) from error


def _without_frozen(net: Trellis, pruning: Mapping[str, Any], screen: Watch) -> dict[str, Any]:
    """Add frozen weights to those that are ignored: they could not make up for what is removed."""
    parameters = dict(net.model.named_parameters(remove_duplicate=False))
    plain = {name.replace("parametrizations.", "").removesuffix(".original"): parameter
             for name, parameter in parameters.items()}  # fmt: skip
    given = pruning["ignore"]
    ignored = [given] if isinstance(given, str) else list(given)
    already = matching(net, tuple(ignored))
    frozen = [
        name for name in net.connections
        if name in plain and not plain[name].requires_grad and name not in already
    ]  # fmt: skip
    if frozen:
        screen.say(f"frozen, so not pruned: {', '.join(frozen)}")
    return {**pruning, "ignore": (*ignored, *frozen)}


def _check_masks(net: Trellis, goal: int | None, ignored: Any) -> None:
    """Raise if the model's own masks keep fewer live connections than are asked for."""
    try:
        masks = masks_of(net.model)
    except TrellisError:  # it has none
        return
    if goal is None or all(bool(mask.all()) for mask in masks.values()):
        return
    live = audit(net, ignore=ignored).live
    if live < goal:
        raise TrellisError(
            f"expected a model that can keep {goal:,} connections, got masks that leave {live:,} "
            f"live; give keep={live} or less, or take the masks off first"
        )


def check_options(given: Mapping[str, Any], method: Any, function: Any) -> None:
    """Raise for an option that neither `trellis.shrink` nor the method has."""
    if not isinstance(method, str):
        return
    own = {option.name for option in options_of_class(method_class(method))} | {"regrow"}
    for name in given:
        if name in own:
            continue
        known = [*inspect.signature(function).parameters, *own]
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"{method!r} has {', '.join(sorted(own))}"
        if name in ("lr", "learning_rate", "rate"):
            hint = "give optimizer=, such as lambda params: torch.optim.AdamW(params, lr=1e-3)"
        raise TrellisError(f"shrink has no option {name!r}; {hint}")


def check_saliency(given: Any) -> None:
    """Raise for the name of a saliency that cannot be gathered in training."""
    known = (*NAMES, *KINDS)
    if isinstance(given, str) and given not in known:
        hint = "; trellis.saliency(model, batches, kind='wanda') measures it on a trained model" * (
            given == "wanda"
        )
        raise TrellisError(
            f"unknown saliency={given!r:.60}; known: {', '.join(known)}, a mapping of names to "
            f"tensors, or a function (name, parameter) -> tensor{hint}"
        )


def _has_gradients(net: Trellis, names: Iterable[str], task: Task, batch: Any) -> bool:
    """Return whether a batch gives gradients to all of ``names``. The model is changed."""
    loss = task.result(net.model, task.read(batch)).loss
    loss.backward()
    return can_gather(net.model, names)


def pruning_options(pruning: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `trellis.prune` among those of a pruner."""
    return {name: value for name, value in pruning.items() if name != "regrow"}


def check_feasible(
    net: Trellis, keep: int | None, pruning: Mapping[str, Any],
    sparsity: float | None = None,
) -> Pruner:  # fmt: skip
    """Raise if no consistent network has this budget. The model of the trellis is changed."""
    options = dict(pruning)
    if isinstance(options.get("saliency"), str):
        options["saliency"] = "magnitude"  # others need gradients
    schedule = Schedule("one-shot", begin=1)
    return Pruner(net, sparsity=sparsity, keep=keep, schedule=schedule, **options)


def _is_trained(task: Task, losses: Sequence[float], batches: Sequence[Batch]) -> bool:
    """Return whether the loss is below half that of a constant prediction."""
    mean = sum(losses) / len(losses)
    if task.classes and task.kind != "whole":
        targets = torch.cat([batch.targets.flatten() for batch in batches])
        targets = targets[targets >= 0]
        if not len(targets):
            return False
        share = torch.bincount(targets.long()).double() / len(targets)
        constant = float(-(share * share.clamp(min=1e-30).log()).sum())
    elif task.kind == "pair" and task.given is None:
        constant = float(torch.cat([batch.targets.flatten() for batch in batches]).var())
    else:
        return False
    return mean < 0.5 * constant


# The defaults and checks of arguments.


def _optimizer_of(
    given: Callable[[list[dict[str, Any]]], Optimizer] | None, total: int
) -> Callable[[nn.Module], Optimizer]:
    """Return a function from a model to its optimizer.

    The default is AdamW. Its rate falls with the size of the model, from 3e-3 up to a million
    connections to 1e-4. Biases and norms do not decay.
    """

    def default(model: nn.Module) -> Optimizer:
        large = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
        small = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
        groups: list[dict[str, Any]] = [
            {"params": large}, {"params": small, "weight_decay": 0.0}
        ]  # fmt: skip
        rate = 3e-3 * min(1.0, max(math.sqrt(1e6 / max(total, 1)), 1 / 30))
        return torch.optim.AdamW([g for g in groups if g["params"]], lr=rate, weight_decay=0.01)

    if given is None:
        return default
    if not callable(given):
        raise TrellisError(
            "expected optimizer to be a function from parameters to an optimizer, such as lambda "
            f"params: torch.optim.SGD(params, lr=0.1), got {given!r:.60}"
        )
    return lambda model: given([{"params": [p for p in model.parameters() if p.requires_grad]}])


def _check_optimizer(make: Callable[[nn.Module], Optimizer], model: nn.Module) -> None:
    if not any(p.requires_grad for p in model.parameters()):
        raise TrellisError("no parameter of the model requires gradients; unfreeze some")
    found = make(model)
    if not isinstance(found, Optimizer):
        raise TrellisError(
            f"expected optimizer to return a torch.optim.Optimizer, got {type(found).__name__}"
        )
    own = {id(parameter) for parameter in model.parameters()}
    held = [parameter for group in found.param_groups for parameter in group["params"]]
    if not any(id(parameter) in own for parameter in held):
        raise TrellisError(
            "the optimizer holds no parameter of the model; give a function that uses its "
            "argument, such as lambda params: torch.optim.SGD(params, lr=0.1)"
        )


def _scheduler_of(given: Callable[..., Any]) -> Callable[[Optimizer, int], Any]:
    if not callable(given):
        raise TrellisError(
            "expected scheduler to be a function (optimizer, steps) that returns a scheduler, got "
            f"{given!r:.60}"
        )
    try:
        wanted = len(inspect.signature(given).parameters)
    except (TypeError, ValueError):
        wanted = 2

    def make(optimizer: Optimizer, steps: int) -> Any:
        return given(optimizer) if wanted == 1 else given(optimizer, steps)

    return make


def _described(optimizer: Optimizer) -> dict[str, Any]:
    groups = [
        {name: value for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]
    return {
        "class": type(optimizer).__name__,
        "groups": json.loads(json.dumps(groups, default=str)),
    }


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _code(function: Any) -> str | None:
    """Return a digest of a function's code, so that an edited loss is not taken for the old one."""
    if isinstance(function, nn.Module):
        return repr(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    found = hashlib.sha256()
    waiting = [code]
    while waiting:
        one = waiting.pop()
        found.update(one.co_code)
        inner = [each for each in one.co_consts if hasattr(each, "co_code")]
        told = [each for each in one.co_consts if not hasattr(each, "co_code")]
        found.update(repr((told, one.co_names)).encode())
        waiting += inner
    return found.hexdigest()[:16]


def _shapes(model: nn.Module) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in plain_state(model).items()}


def _length(loader: Any) -> int:
    try:
        return max(len(loader), 1)
    except TypeError:
        return 1


def _steps_of(epochs: float | None, steps: int | None, batches: int, rates: int) -> int:
    if epochs is not None and steps is not None:
        raise TrellisError(f"give epochs or steps, got epochs={epochs!r} and steps={steps!r}")
    if steps is not None:
        return whole("steps", steps, 2)
    if epochs is None:
        usual = min(max(math.ceil(_STEPS / batches), _FEWEST), _MOST) * batches
        return usual * (rates + 1) // 2
    if not isinstance(epochs, Real) or isinstance(epochs, bool) or not 0 < epochs < math.inf:
        raise TrellisError(f"expected a positive number of epochs, got epochs={epochs!r}")
    return max(round(float(epochs) * batches), 2)


def check_target(sparsity: Any, keep: Any, at_least: Any, validation: Any) -> None:
    if sum(given is not None for given in (sparsity, keep, at_least)) != 1:
        raise TrellisError(
            "give one of sparsity (the fraction removed, such as 0.99), keep (a number of "
            "connections) and at_least (a score to hold); got "
            f"sparsity={sparsity!r}, keep={keep!r}, at_least={at_least!r}"
        )
    if at_least is None:
        return
    number = isinstance(at_least, Real) and not isinstance(at_least, bool)
    if not number or not math.isfinite(at_least):
        raise TrellisError(f"expected a number, got at_least={at_least!r}; give one such as 0.92")
    if validation is None:
        raise TrellisError("at_least needs validation=, batches for the score that is to be held")


def whole(name: str, value: Any, least: int) -> int:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not least <= int(value) < 2**63:
        raise TrellisError(f"expected {name} to be a whole number from {least}, got {value!r}")
    return int(value)


def check_seconds(value: Any) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not float(value) >= 0:
        raise TrellisError(
            f"expected checkpoint_every to be a number of seconds, got {value!r:.60}"
        )


def check_clip(clip: Any) -> None:
    if clip is None:
        return
    if not isinstance(clip, int | float) or isinstance(clip, bool) or not 0 < clip < math.inf:
        raise TrellisError(f"expected clip to be a positive number, got {clip!r}")


def device_of(given: torch.device | str) -> torch.device:
    if given == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(given)
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise TrellisError(
            f"expected a device such as 'cpu' or 'cuda', got device={str(given)!r}: "
            f"{str(error).splitlines()[0]:.200}"
        ) from None
    return device


def precision_of(given: str | None, device: torch.device) -> str:
    precision = "fp32" if given is None else given
    if precision not in PRECISIONS:
        raise TrellisError(f"unknown precision {given!r}; known: {', '.join(PRECISIONS)}")
    if precision in ("tf32", "fp16") and device.type != "cuda":
        raise TrellisError(
            f"precision={given!r} needs a GPU; give 'fp32' or 'bf16' on {device.type!r}"
        )
    return precision
