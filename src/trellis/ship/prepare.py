"""A model as tables that are ready to be written: weights stored, classes and input described."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..errors import TrellisError
from ..finite import check_model
from .format.meta import checked_meta
from .recording import Recording
from .tables.build import tables
from .tables.form import Tables
from .tables.quantise import stored


def prepared(
    model: nn.Module | Tables, example_inputs: Any = None, *, values: str = "fp32",
    data: Any = None, classes: Sequence[str] | None = None, recording: Recording | None = None,
) -> Tables:  # fmt: skip
    """The tables of a model, with ``values`` of one kind.

    ``data`` is inputs such as the network will see, (samples, …), on which int8 is calibrated.
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
        reason = str(error).replace("its META", "what is said of the model")
        raise TrellisError(f"classes or recording do not fit the network: {reason}") from None
    return dataclasses.replace(found, notes=notes)


def _samples(found: Tables, data: Any) -> NDArray[np.float32]:
    array = data.detach().cpu().numpy() if isinstance(data, torch.Tensor) else np.asarray(data)
    if len(found.inputs) != 1 or array.ndim < 2 or array[0].size != found.input_units:
        raise TrellisError(
            f"data has the shape {array.shape}; samples of {found.inputs} are expected"
        )
    return array.reshape(len(array), -1).astype(np.float32)
