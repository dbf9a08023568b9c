"""Stopping a training and going on with it, as if nothing had happened.

A checkpoint is one safetensors file: all tensors that change while training, and in its metadata
how many epochs are done and what was being trained, on what, and how, with a digest of all that.
"""

from __future__ import annotations

import glob
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from ..errors import TrellisError
from ..files import digest, intact, remove_drafts, replacing, write_tensors
from ..schema import CheckpointHeader, fitted, parsed
from .plan import differing
from .trainer import Training

HEADER, VERSION = "trellis.checkpoint", 1
EVERY = 30.0  # seconds between two checkpoints


class Another(TrellisError):
    """A checkpoint is of another training; ``differs`` is what is not the same, in words."""

    def __init__(self, path: Path, differs: str) -> None:
        self.differs = differs
        super().__init__(
            f"the checkpoint {str(path)!r} is of another training: {differs}. Go on with the "
            "settings it was begun with, or remove it to train from the start"
        )


def run(
    training: Training,
    checkpoint: Path | None = None,
    *,
    about: Mapping[str, Any] | None = None,
    until: int | None = None,
    every: float | None = None,
    watch: Callable[[Training], None] | None = None,
) -> float:
    """Train to the end, or until so many epochs are done, from ``checkpoint`` where there is one,
    writing one now and then. Returns how many seconds it took, those before the checkpoint among
    them.

    On one device the result is the same, bit for bit, however often this is stopped and called
    again. ``about`` is whatever else must be the same for that (the data's name, the weights
    that training began with). ``every`` is in seconds. Training that diverges raises, and nothing
    is written. ``watch`` is called after every epoch. The
    checkpoint stays: whoever has put the result away calls `remove_checkpoint`.

    >>> import torch
    >>> from trellis.training import forward_of, recipe_named, stack
    >>> model = torch.nn.Linear(2, 2)
    >>> recipe = recipe_named("paper", epochs=5)
    >>> x, y = torch.eye(2), torch.arange(2)
    >>> training = Training(forward_of(model), stack([model]), x, y, recipe, seeds=[0])
    >>> seen = []
    >>> run(training, watch=lambda training: seen.append(training.epochs_done)) > 0
    True
    >>> seen
    [1, 2, 3, 4, 5]
    """
    # Once: it looks at every recording.
    settings = {} if checkpoint is None else _settings(training, about)
    before = 0.0
    if checkpoint is not None and checkpoint.exists():
        before = _read(checkpoint, training, settings)
    began = last = time.monotonic()
    end = training.epochs if until is None else min(until, training.epochs)
    if training.epochs_done > end:
        raise TrellisError(
            f"{training.epochs_done} epochs are done, of {end} that were to be: remove "
            f"{str(checkpoint)!r} to train from the start"
        )
    first = True
    while training.epochs_done < end:
        training.epoch()
        if watch is not None:
            watch(training)
        late = time.monotonic() - last >= (EVERY if every is None else every)
        due = late or training.epochs_done >= end
        if due or first:  # not after every epoch: a GPU would wait for the answer
            training.check_finite()
            first = False
        if due:
            if checkpoint is not None:
                _write(checkpoint, training, settings, before + time.monotonic() - began)
            last = time.monotonic()
    return before + time.monotonic() - began


def write_checkpoint(
    path: Path, training: Training, about: Mapping[str, Any] | None = None
) -> None:
    """Write where a training stands, between two epochs, whole or not at all."""
    _write(path, training, _settings(training, about))


def read_checkpoint(path: Path, training: Training, about: Mapping[str, Any] | None = None) -> None:
    """Put a training where a checkpoint of the same training stood; any other is refused."""
    _read(path, training, _settings(training, about))


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, and what a process that was killed while writing it left beside it."""
    remove_drafts(path.parent, glob.escape(path.name))
    path.unlink(missing_ok=True)


def _write(path: Path, training: Training, settings: dict[str, Any], seconds: float = 0.0) -> None:
    header = {
        "version": VERSION,
        "epochs_done": training.epochs_done,
        "seconds": round(seconds, 3),
        "settings": settings,
    }
    tensors = {name: t.detach().cpu().clone() for name, t in training.tensors().items()}
    with replacing(path) as [draft]:
        write_tensors(draft, tensors, {HEADER: json.dumps(header)})


def _read(path: Path, training: Training, settings: dict[str, Any]) -> float:
    """Returns the seconds that it had taken up to there; 0 where an older version did not say."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            header = _header(path, metadata)
            names: list[str] = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
    except OSError as error:
        raise TrellisError(f"{str(path)!r} cannot be read: {error}") from error
    except safetensors.SafetensorError as error:
        raise _damaged(path, f"not a whole safetensors file ({error})") from error
    sound = intact(tensors, metadata)
    if sound is None:
        raise _damaged(path, "it has no digest, as an older release wrote it")
    if not sound:
        raise _damaged(path, "its content is not what was written (digest)")
    _check_same(path, header["settings"], settings)
    own = training.tensors()
    for name, tensor in tensors.items():
        if name in own and own[name].dtype != tensor.dtype:
            raise _damaged(path, f"{name!r} is {tensor.dtype}, not {own[name].dtype}")
    training.restore(tensors, header["epochs_done"])
    return header.get("seconds") or 0.0


def _settings(training: Training, about: Mapping[str, Any] | None) -> dict[str, Any]:
    """Everything that the result depends on, as JSON holds it."""
    recipe = {f"recipe.{name}": value for name, value in training.recipe.to_dict().items()}
    own = recipe | {
        "epochs": training.epochs,
        "rate": training.first_rate,
        "seeds": training.seeds,
        "precision": training.precision,
        "device": training.x.device.type,
        "recordings": digest({"x": training.x, "y": training.y}),
        "masks": digest(training.masks),
        "pruning": None if training.pruning is None else training.pruning.to_dict(),
        "dropout": None if training.dropout is None else training.dropout.to_dict(),
        "weights": {name: list(weight.shape) for name, weight in training.weights.items()},
    }
    # What a person has asked for comes first: where settings differ, the first few are named.
    result: dict[str, Any] = json.loads(json.dumps(dict(about or {}) | own, allow_nan=False))
    return result


def _header(path: Path, metadata: Mapping[str, str]) -> CheckpointHeader:
    if HEADER not in metadata:
        raise _damaged(path, f"it has no {HEADER!r} header")
    try:
        given = parsed(metadata[HEADER])
        if isinstance(given, dict) and given.get("version", VERSION) != VERSION:
            raise TrellisError(f"expected version {VERSION}, got {given['version']!r:.60}")
        return fitted(given, CheckpointHeader)
    except TrellisError as error:
        raise _damaged(path, str(error)) from None


def _check_same(path: Path, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    if differs := differing(stored, wanted):
        raise Another(path, differs)


def _damaged(path: Path, what: str) -> TrellisError:
    return TrellisError(
        f"{str(path)!r} is not a sound checkpoint: {what}. Remove it to train from the start"
    )
