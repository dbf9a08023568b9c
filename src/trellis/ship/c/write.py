"""A model as a folder of C: ``model.h``, ``model.c``, ``main.c`` and a README."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ...files import check_writable, replacing
from ..folder import made
from ..format.write import to_bytes
from ..prepare import prepared
from ..recording import Recording, cosine_table, waves
from ..tables.form import Tables
from .model import header, program, source
from .readme import readme

FILES = ("model.h", "model.c", "main.c", "README.md", "model.trellis")


@dataclass(frozen=True)
class Exported:
    """What was written: where, and how large it is on a device."""

    folder: Path
    weights: int  # that are stored
    units: int
    uses: int
    file: int  # bytes of model.trellis
    flash: int  # bytes of the tables in C
    ram: int  # bytes of scratch memory and outputs

    def __str__(self) -> str:
        return (
            f"{self.folder}: {self.weights:,} weights, {self.units:,} units, "
            f"{self.uses:,} multiplications; model.trellis {self.file:,} bytes; in C, tables of "
            f"{self.flash:,} bytes and {self.ram:,} bytes of memory"
        )


def write_c(tables: Tables, folder: str | os.PathLike[str]) -> Exported:
    """Write tables as C. The folder is made if need be; its other files are left alone."""
    texts = (header(tables), source(tables), program(tables), readme(tables))
    contents = [*(text.encode() for text in texts), to_bytes(tables)]
    with made(folder, "C") as path:
        paths = [path / name for name in FILES]
        for target in paths:
            check_writable(target)
        with replacing(*paths) as drafts:
            for draft, content in zip(drafts, contents, strict=True):
                draft.write_bytes(content)
    return Exported(
        path, tables.weights, tables.units, tables.uses, len(contents[-1]), flash(tables),
        4 * (tables.size + tables.output_units),
    )  # fmt: skip


def flash(tables: Tables) -> int:
    """Bytes of const tables in the C that `write_c` writes."""
    index = 2 if tables.size <= 0xFFFF else 4
    value = {"fp32": 4, "fp16": 2, "int8": 1}[tables.values]
    total = index * len(tables.results)
    for step in tables.steps:
        total += 20 + index * (3 * len(step.bands) + len(step.terms) + len(step.others))
        total += index * 2 * len(step.outs) + value * len(step.weights)
        total += 4 * len(step.fan) * (bool(np.any(step.bias)) + bool(np.any(step.scale != 1)))
    recording = tables.notes.get("recording")
    if recording and waves(recording):
        total += 4 * len(cosine_table(recording["chunks"]))
    return total


def export_c(
    model: nn.Module | Tables, example_inputs: Any, folder: str | os.PathLike[str], *,
    values: str = "fp32", data: Any = None, classes: Sequence[str] | None = None,
    recording: Recording | None = None,
) -> Exported:  # fmt: skip
    """Write a model as C99 that runs anywhere: no allocation, no dependency, tables in flash.

    The model may be masked, baked or compacted. ``values`` is how weights are stored: ``"fp32"``,
    ``"fp16"`` or ``"int8"``, calibrated on ``data`` where it is given (inputs such as the network
    will see); activations are always single precision. With ``classes`` and a `Recording`, the
    program names the action in a recording. ``model.trellis`` is for `trellis.Runtime`.

    >>> import tempfile, torch
    >>> layer = nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = export_c(layer, torch.zeros(1, 3), folder)
    ...     found.weights, sorted(os.listdir(folder))
    (6, ['README.md', 'main.c', 'model.c', 'model.h', 'model.trellis'])
    """
    found = prepared(
        model, example_inputs, values=values, data=data, classes=classes, recording=recording
    )
    return write_c(found, folder)
