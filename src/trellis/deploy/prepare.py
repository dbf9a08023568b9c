"""Prepare a model for export: its tables, the storage of weights, classes and inputs."""

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
from ..finite import check_model
from .format.encoding import checked_meta
from .recording import Recording
from .tables.form import Tables
from .tables.lower import tables
from .tables.quantize import stored

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
) -> Tables:  # fmt: skip
    """Return the tables of a model, ready to be written.

    Args:
        model: A model, or its tables.
        example_inputs: Example inputs, as for `trellis.audit`; not needed for tables.
        values: How weights are stored: ``"fp32"``, ``"fp16"`` or ``"int8"``.
        data: Inputs such as the network will see, (samples, …), to calibrate int8 on.
        classes: Names of the outputs.
        recording: What the network expects of a recording.
    """
    if isinstance(model, nn.Module):
        check_model(model, "repair it before exporting")
    found = model if isinstance(model, Tables) else tables(model, example_inputs)
    found = stored(found, values, None if data is None else _samples(found, data))
    notes = dict(found.notes)
    if classes is not None:
        notes["classes"] = [str(name) for name in classes]
    if recording is not None:
        notes["recording"] = recording.notes()
    shapes = {"inputs": list(map(list, found.inputs)), "outputs": list(map(list, found.outputs))}
    try:
        checked_meta({"values": values, **shapes, **notes})
    except TrellisError as error:
        reason = str(error).replace("its META", "the description of the model")
        raise TrellisError(f"classes or recording do not fit the network: {reason}") from None
    return dataclasses.replace(found, notes=notes)


def _samples(found: Tables, data: Any) -> NDArray[np.float32]:
    array = data.detach().cpu().numpy() if isinstance(data, torch.Tensor) else np.asarray(data)
    if len(found.inputs) != 1 or array.ndim < 2 or array[0].size != found.input_units:
        raise TrellisError(f"data: expected samples of shape {found.inputs}, got {array.shape}")
    return array.reshape(len(array), -1).astype(np.float32)
