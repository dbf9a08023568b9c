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
from ..masks.masked import check_model
from .format.encoding import checked_meta
from .recording import Recording
from .tables.form import VALUES, Loop, Step, Tables, advance
from .tables.lower import tables

# Weights in fewer bits: half precision, or integers with one scale per row.


# Candidates for the code of a row's largest weight. Above 127 it is clipped, which helps the other
# weights; below, the scale, which has few digits, may fit better.
_LARGEST = (*range(96, 128), 135, 145, 160, 180, 210)


def stored(tables: Tables, values: str, data: NDArray[np.float32] | None = None) -> Tables:
    """Return the tables with weights as ``"fp32"``, ``"fp16"`` or ``"int8"``.

    int8 has one scale per group. With ``data``, inputs such as the network will see (samples, …),
    the scale minimises the error of the sums, and the mean error of each group is subtracted from
    its bias. Without ``data``, all terms count alike.
    """
    if values not in VALUES:
        raise TrellisError(f"unknown values={values!r}; known: {', '.join(map(repr, VALUES))}")
    if tables.values != "fp32":
        if tables.values == values:
            return tables
        raise TrellisError(f"the weights are already {tables.values}; start from the model")
    if values == "fp32":
        return tables
    moments = None if data is None or values != "int8" else _moments(tables, data)
    steps: list[Step | Loop] = []
    for number, step in enumerate(tables.steps):
        if step.kind == "max" or (isinstance(step, Loop) and step.shared):
            steps.append(step)
        elif values == "fp16":
            steps.append(_half(step))
        else:
            steps.append(_bytes(step, None if moments is None else moments[number]))
        if steps[-1].not_finite():
            raise TrellisError(
                f"a weight is too large for values={values!r}: its scale is beyond float32. Give "
                "values='fp32', or scale the model down"
            )
    return dataclasses.replace(tables, steps=tuple(steps), values=values)


def _half(step: Step | Loop) -> Step | Loop:
    """Store in half precision, scaled by a power of two if a weight would leave its range."""
    largest = _per_group(step, np.abs(step.weights), np.maximum)
    power = np.minimum(np.ceil(np.log2(np.maximum(largest, 1e-30))), 127)  # float32 has no more
    scale = np.where(largest > 0, 2.0**power, 1.0)
    usual = (largest > 2.0**-6) & (largest < 2.0**15)
    scale = np.where(usual.all(), 1.0, scale).astype(np.float32)
    halves = (step.weights / scale[step.group_of_term()]).astype(np.float16)
    return dataclasses.replace(step, weights=halves, scale=scale)


Moments = tuple[NDArray[np.float64], NDArray[np.float64]]  # of each term: mean, mean square


def _bytes(step: Step | Loop, moments: Moments | None) -> Step | Loop:
    group = step.group_of_term()
    weights = step.weights.astype(np.float64)
    largest = _per_group(step, np.abs(weights), np.maximum)
    square = np.ones(len(weights)) if moments is None else moments[1] + 1e-12
    best = np.full(len(step.fan), np.inf)
    scale = np.ones(len(step.fan))
    for most in _LARGEST:
        trial = _short(np.where(largest > 0, largest / most, 1.0))
        error = (weights - _rounded(weights, trial[group]) * trial[group]) ** 2 * square
        total = np.bincount(group, error, minlength=len(scale))
        better = total < best
        best, scale = np.where(better, total, best), np.where(better, trial, scale)
    codes = _rounded(weights, scale[group])
    bias = step.bias
    # A bias takes as much room as four weights: where rows are short and had none, it stays zero.
    worth = np.any(bias) or len(weights) >= 16 * len(bias)
    if moments is not None and step.kind in ("sum", "conv") and worth:
        lost = np.bincount(group, (weights - codes * scale[group]) * moments[0], len(scale))
        bias = (bias + lost).astype(np.float32)
    return dataclasses.replace(
        step, weights=codes.astype(np.int8), scale=scale.astype(np.float32), bias=bias
    )


def _short(scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round scales to the upper half of a float32, as files store them."""
    bits = scale.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def _rounded(weights: NDArray[Any], scale: NDArray[Any]) -> NDArray[Any]:
    codes: NDArray[Any] = np.clip(np.rint(weights / scale), -127, 127)
    return codes


def _per_group(step: Step | Loop, values: NDArray[Any], ufunc: Any) -> NDArray[np.float64]:
    result = np.zeros(len(step.fan))
    ufunc.at(result, step.group_of_term(), values)
    return result


def _moments(tables: Tables, data: NDArray[np.float32]) -> list[Moments]:
    """Return, per step, the mean and mean square of what each term reads, over samples and
    instances."""
    memory = np.zeros((tables.size, len(data)), np.float32)
    memory[: tables.input_units] = data.reshape(len(data), -1).T
    found: list[Moments] = []
    for step in tables.steps:
        group = step.group_of_term()
        if isinstance(step, Loop):
            found.append(_moments_of_loop(step, memory))
            advance(step, memory)
            continue
        mean, square = memory.mean(axis=1, dtype=np.float64), (memory.astype(float) ** 2).mean(1)
        means, squares = np.zeros(len(group)), np.zeros(len(group))
        for some, _, term in step.pieces(1 << 20):
            at = step.terms[term] + step.offsets[some][:, None]
            np.add.at(means, term, mean[at])
            np.add.at(squares, term, square[at])
        count = step.count[group]
        found.append((means / count, squares / count))
        advance(step, memory)
    return found


def _moments_of_loop(loop: Loop, memory: NDArray[np.float32]) -> Moments:
    means, squares = np.zeros(len(loop.taps)), np.zeros(len(loop.taps))
    if not loop.shared:
        mean, square = memory.mean(axis=1, dtype=np.float64), (memory.astype(float) ** 2).mean(1)
        positions = loop.positions_read()
        for channel in range(loop.shape[0]):
            at = loop.tap_addresses(channel)[:, None] + positions
            means[loop.spans(channel)] = mean[at].mean(axis=1)
            squares[loop.spans(channel)] = square[at].mean(axis=1)
    return means, squares


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
