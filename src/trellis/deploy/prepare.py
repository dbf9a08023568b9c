"""Prepare a model for export: its tables, their arithmetic, classes and inputs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..errors import TrellisError
from ..masks.masked import check_model
from .format.encoding import checked_meta
from .recording import Recording
from .tables.form import Tables
from .tables.lower import tables
from .tables.quantize import stored, to_int8

# The folder to export to: created if needed, and removed again on failure.


@contextmanager
def made(folder: str | os.PathLike[str], what: str) -> Iterator[Path]:
    """Create a folder; a failure inside leaves no empty folder behind. ``what`` is for messages.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with made(Path(place, "new", "device"), "C") as folder:
    ...         folder.is_dir()
    True
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise TrellisError(f"cannot write {what} to {str(path)!r}: it is a file; name a folder")
    new = [part for part in (path, *path.parents) if not part.exists()]  # innermost first
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # perhaps after some parents were created
            raise TrellisError(f"cannot make the folder {str(path)!r}: {error.strerror}") from None
        yield path
    except BaseException:
        for part in new:
            with suppress(OSError):  # another process wrote into it
                part.rmdir()
        raise


def prepared(
    model: nn.Module | Tables, example_inputs: Any = None, *, values: str = "fp32",
    data: Any = None, classes: Sequence[str] | None = None, recording: Recording | None = None,
    arithmetic: str = "fp32", calibration: Any = None,
) -> Tables:  # fmt: skip
    """Return the tables of a model, ready to be written.

    Args:
        model: A model, or its tables.
        example_inputs: Example inputs, as for `trellis.audit`; not needed for tables.
        values: How weights are stored: ``"fp32"``, ``"fp16"`` or ``"int8"``.
        data: Inputs such as the network will see, (samples, …), to calibrate int8 on.
        classes: Names of the outputs.
        recording: What the network expects of a recording.
        arithmetic: ``"fp32"`` or ``"int8"``.
        calibration: Inputs such as the network will see, for int8 arithmetic: an array (samples, …)
            or batches.
    """
    if isinstance(model, nn.Module):
        check_model(model, "repair it before exporting")
    whole = _whole(arithmetic, calibration, values, data)
    found = model if isinstance(model, Tables) else tables(model, example_inputs, slabs=not whole)
    if whole and found.int8 is None:
        found = to_int8(found, _batches(found, calibration))
    elif found.int8 is None:
        found = stored(found, values, None if data is None else _samples(found, data))
    notes = dict(found.notes)
    if classes is not None:
        notes["classes"] = [str(name) for name in classes]
    if recording is not None:
        notes["recording"] = recording.notes()
    shapes = {"inputs": list(map(list, found.inputs)), "outputs": list(map(list, found.outputs))}
    try:
        checked_meta({"values": found.values, **shapes, **notes})
    except TrellisError as error:
        reason = str(error).replace("its META", "the description of the model")
        raise TrellisError(f"classes or recording do not fit the network: {reason}") from None
    return dataclasses.replace(found, notes=notes)


def _samples(found: Tables, data: Any) -> NDArray[np.float32]:
    array = data.detach().cpu().numpy() if isinstance(data, torch.Tensor) else np.asarray(data)
    if len(found.inputs) != 1 or array.ndim < 2 or array[0].size != found.input_units:
        raise TrellisError(f"data: expected samples of shape {found.inputs}, got {array.shape}")
    return array.reshape(len(array), -1).astype(np.float32)


_MOST_SAMPLES = 1024  # for ranges and moments, more change nothing


def _whole(arithmetic: str, calibration: Any, values: str, data: Any) -> bool:
    """Whether arithmetic is of 8 bits; raise unless the other options fit it."""
    if arithmetic not in ("fp32", "int8"):
        raise TrellisError(f"unknown arithmetic={arithmetic!r}; known: 'fp32', 'int8'")
    if arithmetic == "fp32":
        if calibration is not None:
            raise TrellisError("calibration is for arithmetic='int8'; for values='int8', give data")
        return False
    if calibration is None:
        raise TrellisError(
            "arithmetic='int8' needs calibration: an array of inputs (samples, …) or batches, such "
            "as a few hundred training inputs"
        )
    if values == "fp16" or data is not None:
        raise TrellisError("arithmetic='int8' stores int8 weights; leave out values and data")
    return True


def _batches(found: Tables, calibration: Any) -> NDArray[np.float32]:
    """Return calibration inputs as (samples, inputs)."""
    several = len(found.inputs)
    alone = hasattr(calibration, "shape")
    parts: list[NDArray[np.float32]] = []
    count = 0
    for batch in [calibration] if alone else calibration:
        given = list(batch.values()) if isinstance(batch, dict) else batch
        given = list(given) if isinstance(given, list | tuple) else [given]  # targets may follow
        arrays = [
            np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x, np.float32)
            for x in given[:several]
        ]
        sound = len(arrays) == several and all(
            array.ndim > 0 and array.shape[1:] == shape
            for array, shape in zip(arrays, found.inputs, strict=True)
        )
        if not sound:
            shapes = ", ".join(f"(samples, {', '.join(map(str, s))})" for s in found.inputs)
            raise TrellisError(
                f"calibration: expected batches of shape {shapes}, got "
                f"{', '.join(str(array.shape) for array in arrays)}"
            )
        parts.append(np.concatenate([array.reshape(len(array), -1) for array in arrays], 1))
        count += len(parts[-1])
        if count >= _MOST_SAMPLES:
            break
    if count == 0:
        raise TrellisError("calibration: expected at least one sample, got none")
    every: NDArray[np.float32] = np.concatenate(parts)[:_MOST_SAMPLES]
    if not np.isfinite(every).all():
        raise TrellisError("calibration: an input holds a number that is not finite; repair it")
    return every
