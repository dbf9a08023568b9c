"""The check against NaN and infinity, made before weights or outputs are used or written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .errors import TrellisError
from .masks.plain import plain_tensors


def check_finite(
    tensors: Mapping[str, Tensor], do: str, *, place: str = "", buffers: Collection[str] = ()
) -> None:
    """Raise if a tensor holds NaN or infinity; the message names the first such tensor.

    Args:
        tensors: The tensors by name.
        do: What to do, for the message.
        place: Where the tensors are from, for the message.
        buffers: Names that may hold infinity, as attention masks do, but not NaN.

    >>> check_finite({"fc.weight": torch.tensor([1.0, torch.nan])}, "train the model again")
    Traceback (most recent call last):
    trellis.errors.TrellisError: 'fc.weight' holds 1 value that is not finite (nan); train the \
model again
    """
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.device.type == "meta":
            continue
        if bool(tensor.detach().sum().isfinite()):  # then every entry is finite
            continue
        bad = tensor.isnan() if name in buffers else ~tensor.isfinite()
        if count := int(bad.sum()):
            values = "value that is" if count == 1 else "values that are"
            raise TrellisError(
                f"{place}{name!r} holds {count:,} {values} not finite ({tensor[bad][0].item()}); "
                f"{do}"
            )


def check_model(model: nn.Module, do: str) -> None:
    """Check a model's effective parameters and its buffers."""
    check_finite(plain_tensors(model), do)
    buffers = dict(model.named_buffers())
    check_finite(buffers, do, buffers=buffers.keys())


def check_outputs(outputs: Iterable[Any], do: str) -> None:
    """Raise if an output is NaN. Infinity is allowed: masked scores are infinite."""
    for number, output in enumerate(outputs):
        array = output.detach() if isinstance(output, Tensor) else torch.as_tensor(output)
        if array.is_floating_point() and bool(array.isnan().any()):
            raise TrellisError(f"output {number} of the model is NaN; {do}")
