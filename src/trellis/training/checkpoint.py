"""Checkpoints: a training that is stopped and continued gives the same result.

A checkpoint is one safetensors file. It holds all tensors that change while training. Its metadata
holds the number of epochs done, the settings, the hash of the recordings, and a digest of the file.
"""

from __future__ import annotations

import glob
import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import safetensors
import safetensors.torch
import torch

from ..errors import TrellisError
from ..files import digest, intact, remove_drafts, replacing, write_tensors
from ..schema import CheckpointHeader, fitted, parsed
from ..version import __version__
from .schedule import differing
from .trainer import Training

HEADER, VERSION = "trellis.checkpoint", 1
EVERY = 30.0  # seconds between two checkpoints


class OtherSettings(TrellisError):
    """A checkpoint is of a training with other settings; ``differs`` names them in words."""

    def __init__(self, path: Path, differs: str) -> None:
        self.differs = differs
        super().__init__(
            f"the checkpoint {str(path)!r} is of another training: {differs}. Give the settings "
            "that it was begun with, or remove it to train from the start"
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
    """Train to the end, and write checkpoints meanwhile.

    If the checkpoint exists, training continues from it. On one device the result is the same, bit
    for bit, however often training is stopped and continued. The checkpoint is not removed; call
    `remove_checkpoint` when the result is stored.

    Args:
        training: The training.
        checkpoint: The file of the checkpoint (default: no checkpoint).
        about: Further settings that must be the same in order to continue, as JSON can hold them.
        until: The epoch at which to stop (default: the last).
        every: Seconds between two checkpoints (default: 30).
        watch: Called with the training after every epoch.

    Returns:
        The seconds that training took, including those before the checkpoint.

    Raises:
        OtherSettings: The checkpoint is of another training.
        Diverged: A loss or a weight is not finite. No checkpoint is written then.

    Example:
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
    # Computed once, because it hashes every recording.
    settings = {} if checkpoint is None else _settings(training, about)
    before = 0.0
    if checkpoint is not None and checkpoint.exists():
        before = _read(checkpoint, training, settings)
    began = last = time.monotonic()
    end = training.epochs if until is None else min(until, training.epochs)
    if training.epochs_done > end:
        raise TrellisError(
            f"expected a checkpoint of at most {end} epochs, got one of {training.epochs_done}; "
            f"remove {str(checkpoint)!r} to train from the start"
        )
    first = True
    while training.epochs_done < end:
        training.epoch()
        if watch is not None:
            watch(training)
        late = time.monotonic() - last >= (EVERY if every is None else every)
        due = late or training.epochs_done >= end
        if due or first:  # not after every epoch: it synchronizes with the GPU
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
    """Write a checkpoint, atomically."""
    _write(path, training, _settings(training, about))


def read_checkpoint(path: Path, training: Training, about: Mapping[str, Any] | None = None) -> None:
    """Restore a training from its checkpoint.

    Raises:
        OtherSettings: The checkpoint is of another training.
    """
    _read(path, training, _settings(training, about))


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, and the temporary files of a process killed while it wrote."""
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
    """Restore a training; return the seconds that it had taken (0 in older checkpoints)."""
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
    """Return everything that the result depends on, as JSON can hold it."""
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
    # The caller's settings come first: error messages name the first few that differ.
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
    # Another recipe is named first, since much else differs because of it.
    recipe = {name: value for name, value in wanted.items() if name == "recipe.name"}
    if differs := differing(stored, recipe | wanted):
        raise OtherSettings(path, differs)


def _damaged(path: Path, what: str) -> TrellisError:
    return TrellisError(
        f"{str(path)!r} is not a sound checkpoint: {what}. Remove it to train from the start"
    )


def versions() -> dict[str, str]:
    """Return the versions of the programs that results depend on."""
    return {
        "trellis": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def check_versions(known: Mapping[str, str]) -> None:
    """Raise in a worker whose versions are not those of the driver."""
    if (own := versions()) != dict(known):
        differs = [f"{name} {known.get(name)} there, {own[name]} here" for name in own
                   if known.get(name) != own[name]]  # fmt: skip
        raise TrellisError(
            f"expected the driver's versions in every worker, got {'; '.join(differs)}; install "
            "the same versions"
        )


def hardware(device: torch.device) -> str:
    """Return the name of a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    name = names[0] if names else platform.processor() or platform.machine() or "unknown"
    threads = torch.get_num_threads()
    return f"CPU {name}, {threads} thread{'s' * (threads > 1)}"


def in_words(seconds: float) -> str:
    """Return a duration in words.

    >>> in_words(0.4), in_words(1), in_words(40), in_words(600), in_words(9000)
    ('less than a second', '1 second', '40 seconds', '10 minutes', '2.5 hours')
    """
    if seconds < 0.5:
        return "less than a second"
    if seconds < 100:
        return f"{seconds:.0f} second{'s' * (seconds >= 1.5)}"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"
