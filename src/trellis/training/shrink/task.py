"""What a network is trained for: its batches, its loss and its score.

A batch is a tensor, a tuple ``(inputs, targets)`` or a dictionary. This module finds the inputs and
the targets in it, chooses a loss and a score where none is given, and checks all of them on a few
batches before anything is trained.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, TensorDataset

from ...errors import TrellisError
from ...graph.inputs import Inputs, describe

LABELS = ("labels", "label", "targets", "target", "y")  # keys of targets in a dictionary
_WHOLE = ("model", "module", "net", "network")  # first parameter of a loss (model, batch)
_IGNORED = -100  # targets that cross entropy ignores
_MOST_COUNTED = 100_000  # batches counted in an iterable without a length
PROBES = 8  # batches that are checked, and that batch norm is estimated on

Loss = Callable[..., Tensor]
Score = Callable[[nn.Module, Iterable[Any]], float]


@dataclass(frozen=True, eq=False)
class Batch:
    """The parts of a batch.

    Args:
        whole: The batch as the loader yields it, on the device.
        inputs: What the model is called with.
        targets: The targets; None if the batch has none.
        size: The number of samples.
    """

    whole: Any
    inputs: Inputs
    targets: Any
    size: int


def read_batch(given: Any, device: torch.device, *, channels_last: bool = False) -> Batch:
    """Move a batch to a device, and split it into inputs and targets.

    >>> batch = read_batch((torch.zeros(4, 2), torch.ones(4)), torch.device("cpu"))
    >>> batch.inputs, batch.size, batch.targets.sum().item()
    (Inputs(float32 4x2), 4, 4.0)
    >>> read_batch({"x": torch.zeros(3, 2), "labels": None}, torch.device("cpu")).inputs
    Inputs(x=float32 3x2)
    """

    def moved(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            raise TrellisError(
                f"expected batches of tensors, got a NumPy array of shape {value.shape}; convert "
                "it with torch.from_numpy"
            )
        if not isinstance(value, Tensor):
            return value
        value = value.to(device, non_blocking=True)
        if channels_last and value.ndim == 4 and value.is_floating_point():
            value = value.contiguous(memory_format=torch.channels_last)
        return value

    if isinstance(given, Mapping):
        given = dict(given)
    elif not isinstance(given, Tensor | tuple | list) and hasattr(given, "to"):
        given = given.to(device)
    whole = pytree.tree_map(moved, given)
    inputs, targets = _split(whole)
    sizes = [x.shape[0] for x in pytree.tree_leaves((inputs.args, inputs.kwargs)) if _is_batch(x)]
    return Batch(whole, inputs, targets, sizes[0] if sizes else 1)


def _is_batch(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


def _split(whole: Any) -> tuple[Inputs, Any]:
    if isinstance(whole, dict):
        label = next((name for name in LABELS if name in whole), None)
        inputs = {name: value for name, value in whole.items() if name != label}
        return Inputs(**inputs), None if label is None else whole[label]
    if isinstance(whole, tuple | list) and len(whole) > 1:
        first, target = whole[:-1], whole[-1]
        only = first[0] if len(first) == 1 else tuple(first)
        if isinstance(only, Mapping):
            return Inputs(**only), target
        return Inputs(*(only if isinstance(only, tuple | list) else (only,))), target
    if isinstance(whole, tuple | list):
        return Inputs(*whole), None
    return Inputs(whole), None


def check_loader(name: str, loader: Any) -> None:
    """Raise unless the loader can be iterated over again and again."""
    if isinstance(loader, Tensor | str | bytes | Mapping) or not isinstance(loader, Iterable):
        raise TrellisError(
            f"expected {name} to be an iterable of batches, such as a DataLoader or a list of "
            f"(inputs, targets), got {type(loader).__name__}"
        )
    if isinstance(loader, Iterator):
        raise TrellisError(
            f"{name} is a {type(loader).__name__}, which can be iterated over only once; give a "
            "DataLoader, a list of batches, or an object whose __iter__ begins again"
        )


def count_batches(name: str, loader: Iterable[Any]) -> int:
    """Return the batches of one epoch; an iterable without a length is iterated over once."""
    try:
        count = len(loader)  # type: ignore[arg-type]
    except TypeError:
        count = 0
        for _ in loader:
            count += 1
            if count > _MOST_COUNTED:
                raise TrellisError(
                    f"{name} has no length and yields more than {_MOST_COUNTED:,} batches; give "
                    "steps=, the number of optimizer steps, in place of epochs"
                ) from None
    if count == 0:
        raise TrellisError(f"{name} yields nothing; give at least one batch")
    return count


def first_batches(name: str, loader: Iterable[Any], count: int = PROBES) -> list[Any]:
    """Return the first batches, those that begin the same way at every call."""
    found = []
    for batch in loader:
        found.append(batch)
        if len(found) >= count:
            break
    if not found:
        raise TrellisError(f"{name} yields nothing; give at least one batch")
    return found


def output_of(given: Any) -> Any:
    """Return the tensor of a model's output that a loss compares with targets.

    This is the output itself, its ``logits``, or the first of several.
    """
    if isinstance(given, Mapping):
        given = given.get("logits", next(iter(given.values()), None))
    elif hasattr(given, "logits"):
        given = given.logits
    elif isinstance(given, tuple | list) and given:
        given = given[0]
    return given


def class_logits(output: Any, targets: Any) -> tuple[Tensor, Tensor] | None:
    """Return logits (n, classes) and targets (n,), or None if they are not of classes.

    Shapes: output (batch, classes, …) with targets (batch, …), as cross entropy takes them, or
    output (batch, …, classes), as models of tokens return them.

    >>> each = class_logits(torch.zeros(2, 7, 5), torch.zeros(2, 7, dtype=torch.long))
    >>> [tuple(x.shape) for x in each]
    [(14, 5), (14,)]
    """
    if not (isinstance(output, Tensor) and isinstance(targets, Tensor)):
        return None
    if targets.is_floating_point() or targets.dtype == torch.bool or not output.is_floating_point():
        return None
    if output.ndim != targets.ndim + 1 or output.ndim < 2:
        return None
    if output.shape[:1] + output.shape[2:] == targets.shape:
        flat = output.movedim(1, -1).flatten(0, -2)
    elif output.shape[:-1] == targets.shape:
        flat = output.flatten(0, -2)
    else:
        return None
    return flat, targets.flatten()


@dataclass(frozen=True, eq=False)
class Result:
    """The loss of a batch, and the output that it was computed from."""

    loss: Tensor
    output: Any
    inputs: Inputs


class Task:
    """The loss and the score of a model.

    Args:
        loss: None, ``(output, targets) -> loss`` or ``(model, batch) -> loss``.
        score: None, or ``(model, loader) -> score``.
        device: Where the model is.
        channels_last: Whether images are stored with channels last.

    Attributes:
        kind: "own" if the model returns its loss, "pair" for a loss of output and targets, "whole"
            for a function of model and batch.
        classes: Whether targets are classes, and outputs their logits.
        accuracy: Whether the default score is the accuracy.
        count: The number of classes.
    """

    def __init__(
        self,
        loss: Loss | None,
        score: Score | None,
        device: torch.device,
        *,
        channels_last: bool = False,
    ) -> None:
        if inspect.isclass(loss):
            raise TrellisError(
                f"expected loss to be a function, got the class {loss.__name__}; write "
                f"{loss.__name__}()"
            )
        if loss is not None and not callable(loss):
            raise TrellisError(
                f"expected loss to be None or a function (output, targets) or (model, batch), got "
                f"{loss!r:.60}"
            )
        if score is not None and not callable(score):
            raise TrellisError(
                f"expected score to be None or a function (model, loader), got {score!r:.60}"
            )
        self.given, self.score_given = loss, score
        self.device, self.channels_last = device, channels_last
        self.kind = "pair"
        self.classes = self.accuracy = False
        self.count = 0
        if loss is not None and _takes_model(loss):
            self.kind = "whole"

    def read(self, batch: Any) -> Batch:
        """Move a batch to the device, and split it."""
        return read_batch(batch, self.device, channels_last=self.channels_last)

    def settle(self, model: nn.Module, first: Any) -> None:
        """Choose the loss by a first batch; raise if batch and loss do not fit the model."""
        batch = self.read(first)
        if self.given is None and isinstance(batch.whole, dict) and batch.targets is not None:
            found = _called(model, Inputs(**batch.whole), "a batch with its targets", quiet=True)
            own = None if found is None else _own_loss(found)
            if isinstance(own, Tensor) and own.ndim == 0:
                self.kind = "own"
        if self.kind == "pair" and batch.targets is None:
            if self.given is None:
                raise TrellisError(
                    "expected batches (inputs, targets), or dictionaries with a key such as "
                    f"'labels', got a batch without targets: {_described(batch.whole)}; give "
                    "loss=, a function (model, batch) that returns the loss"
                )
            self.kind = "whole"
        if self.kind == "pair":
            output = output_of(_called(model, batch.inputs, "a batch"))
            pair = class_logits(output, batch.targets)
            self.classes = self.accuracy = pair is not None
            self.count = 0 if pair is None else pair[0].shape[1]
            if self.given is None:
                self._refuse_unfit(output, batch.targets, pair)
        if self.kind == "whole" and batch.targets is not None:
            found = _called(model, batch.inputs, "a batch", quiet=True)
            pair = None if found is None else class_logits(output_of(found), batch.targets)
            self.accuracy = pair is not None and batch.targets.ndim == 1
        if self.kind == "own":
            output = output_of(_called(model, Inputs(**batch.whole), "a batch"))
            self.classes = class_logits(output, batch.targets) is not None
            # Language models compare their outputs with the next tokens, so accuracy is unknown.
            self.accuracy = self.classes and batch.targets.ndim == 1

    def _refuse_unfit(self, output: Any, targets: Any, pair: tuple[Tensor, Tensor] | None) -> None:
        """Raise if the default losses do not fit output and targets."""
        if not isinstance(output, Tensor) or not isinstance(targets, Tensor):
            raise TrellisError(
                f"expected a model that returns a tensor and batches with a tensor of targets, got "
                f"{_described(output)} and {_described(targets)}; give loss=, a function "
                "(model, batch) that returns the loss"
            )
        if pair is not None:
            both = output.ndim > 2 and output.shape[1] == output.shape[-1]
            if both and output.shape[:-1] == targets.shape == output.shape[:1] + output.shape[2:]:
                raise TrellisError(
                    f"outputs {tuple(output.shape)} and targets {tuple(targets.shape)} do not tell "
                    "which dimension holds the classes; give loss="
                )
            return
        if targets.is_floating_point() and output.numel() == targets.numel():
            return
        raise TrellisError(
            f"outputs of shape {tuple(output.shape)} do not fit targets of shape "
            f"{tuple(targets.shape)} and type {str(targets.dtype).removeprefix('torch.')}: integer "
            "targets are classes (batch, …) for outputs (batch, classes, …), float targets have "
            "the shape of the outputs; give loss= for another loss"
        )

    def check_targets(self, batches: Iterable[Any]) -> None:
        """Raise if targets are out of range in these batches."""
        if not self.classes or self.kind != "pair":
            return
        for batch in batches:
            _, targets = _split(dict(batch) if isinstance(batch, Mapping) else batch)
            refuse_targets(targets, self.count)

    def result(self, model: nn.Module, batch: Batch) -> Result:
        """Return the loss of a batch."""
        if self.kind == "whole":
            assert self.given is not None
            return Result(self.given(model, batch.whole), None, batch.inputs)
        if self.kind == "own":
            output = model(**batch.whole)
            loss = _own_loss(output)
            assert isinstance(loss, Tensor)
            return Result(loss, output, batch.inputs)
        output = model(*batch.inputs.args, **batch.inputs.kwargs)
        told = output_of(output)
        if self.given is not None:
            return Result(self.given(told, batch.targets), output, batch.inputs)
        if self.classes:
            pair = class_logits(told, batch.targets)
            if pair is None:
                raise TrellisError(
                    f"outputs of shape {tuple(told.shape)} do not fit targets of shape "
                    f"{tuple(batch.targets.shape)}; the first batch did fit"
                )
            logits, targets = pair
            if targets.device.type == "cpu":  # a GPU would have to wait
                refuse_targets(targets, logits.shape[1])
            return Result(F.cross_entropy(logits, targets.long()), output, batch.inputs)
        wanted = batch.targets.to(told.dtype).reshape(told.shape)
        return Result(F.mse_loss(told, wanted), output, batch.inputs)

    def distilled(self, output: Any, teacher: Any, targets: Any, temperature: float) -> Tensor:
        """Return how far an output is from the teacher's.

        This is the Kullback-Leibler divergence times the squared temperature for logits of classes,
        and the mean squared error for other outputs.
        """
        ours, theirs = output_of(output), output_of(teacher)
        pair = class_logits(ours, targets) if self.classes else None
        if pair is None:
            return F.mse_loss(ours, theirs)
        taught = class_logits(theirs, targets)
        assert taught is not None
        said = F.log_softmax(pair[0].float() / temperature, dim=1)
        wanted = F.log_softmax(taught[0].float() / temperature, dim=1)
        each = F.kl_div(said, wanted, reduction="none", log_target=True).sum(1)
        counted = (pair[1] != _IGNORED).to(each.dtype)
        return (each * counted).sum() / counted.sum().clamp(min=1) * temperature**2

    def distills(self) -> bool:
        """Whether outputs can be compared with a teacher's: classes, or the default MSE."""
        return self.classes or (self.kind == "pair" and self.given is None)

    @torch.no_grad()
    def evaluate(
        self, model: nn.Module, loader: Iterable[Any], autocast: Callable[[], Any]
    ) -> float:
        """Return the score of a model in eval mode: accuracy for classes, else negative loss."""
        was = model.training
        model.eval()
        try:
            if self.score_given is not None:
                return float(self.score_given(model, loader))
            count = right = 0
            total = 0.0
            for given in loader:
                batch = self.read(given)
                if self.kind == "pair" and batch.targets is None:
                    raise TrellisError(
                        "expected batches of validation (inputs, targets), got one without "
                        f"targets: {_described(batch.whole)}; add them, or give score="
                    )
                with autocast():
                    if self.accuracy and self.kind == "whole":
                        loss, output = None, model(*batch.inputs.args, **batch.inputs.kwargs)
                    else:
                        result = self.result(model, batch)
                        loss, output = result.loss, result.output
                pair = class_logits(output_of(output), batch.targets) if self.accuracy else None
                if pair is None:
                    if loss is None:
                        raise TrellisError(
                            "expected batches of validation whose targets are classes, as in "
                            f"train_loader, got {_described(batch.whole)}"
                        )
                    total += float(loss) * batch.size
                    count += batch.size
                else:
                    valid = pair[1] != _IGNORED
                    right += int(((pair[0].argmax(1) == pair[1]) & valid).sum())
                    count += int(valid.sum())
        finally:
            model.train(was)
        if count == 0:
            raise TrellisError("validation yields nothing; give at least one batch")
        return right / count if self.accuracy else -total / count


def refuse_targets(targets: Any, classes: int) -> None:
    """Raise if a class is out of range."""
    if not isinstance(targets, Tensor) or targets.numel() == 0 or targets.is_floating_point():
        return
    valid = targets[targets != _IGNORED]
    if valid.numel() == 0:
        return
    low, high = int(valid.min()), int(valid.max())
    if low < 0 or high >= classes:
        raise TrellisError(
            f"expected targets from 0 to {classes - 1}, because the model has {classes} outputs, "
            f"got {low if low < 0 else high}; correct the targets or the model's last layer"
        )


def known_targets(loader: Any) -> Tensor | None:
    """Return all targets of a loader if they are at hand without loading the data."""
    if not isinstance(loader, DataLoader):
        return None
    data = loader.dataset
    if isinstance(data, TensorDataset):
        return data.tensors[-1] if len(data.tensors) > 1 else None
    found = getattr(data, "targets", None)
    if isinstance(found, list) and found and isinstance(found[0], int):
        return torch.tensor(found)
    return found if isinstance(found, Tensor) else None


def example_of(inputs: Inputs) -> Inputs:
    """Return inputs to trace a model with: those of a batch, with every position visible."""
    shown = dict(inputs.kwargs)
    mask = shown.get("attention_mask")
    if isinstance(mask, Tensor) and not mask.is_floating_point():
        shown["attention_mask"] = torch.ones_like(mask)
    return Inputs(*inputs.args, **shown)


def check_loss(result: Result) -> None:
    """Raise unless a loss is one finite number with a gradient."""
    loss = result.loss
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        got = _described(loss)
        raise TrellisError(f"expected a loss of one number, got {got}; return its mean or sum")
    value = float(loss.detach())
    if not math.isfinite(value):
        raise TrellisError(
            f"the loss of the first batches is {value}; look for NaN or infinite values in "
            "the data, and for a loss that does not fit the targets"
        )


def _takes_model(loss: Loss) -> bool:
    """Whether a loss takes (model, batch): its first parameter is called model, or its second
    batch."""
    if isinstance(loss, nn.Module):
        return False
    try:
        names = list(inspect.signature(loss).parameters)
    except (TypeError, ValueError):
        return False
    return bool(names) and (names[0] in _WHOLE or names[1:2] == ["batch"])


def _own_loss(output: Any) -> Any:
    if isinstance(output, Mapping):
        return output.get("loss")
    return getattr(output, "loss", None)


@torch.no_grad()
def _called(model: nn.Module, inputs: Inputs, what: str, *, quiet: bool = False) -> Any:
    try:
        return model(*inputs.args, **inputs.kwargs)
    except TrellisError:
        raise
    except Exception as error:
        if quiet:
            return None
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise TrellisError(
            f"{type(model).__name__} does not accept {what} of train_loader, {describe(inputs)}: "
            f"{reason:.300}"
        ) from error


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        shape = "x".join(map(str, value.shape)) or "scalar"
        return f"{str(value.dtype).removeprefix('torch.')} {shape}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {_described(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_described, value))})"
    return type(value).__name__
