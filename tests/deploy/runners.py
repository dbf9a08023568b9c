"""Forms of a model, each run on a batch of inputs: one column a form.

A runner takes a model, inputs (samples, …) and an empty folder, and returns (samples, outputs).
Add a form by adding a function to `RUNNERS`; `test_equal` compares it on every network.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import trellis
from tests.deploy.firmware.emulator import emulated
from tests.deploy.tools import SANITIZED, compiled, ran, tool
from tests.deploy.wasm.node import under_node
from trellis.deploy.format import read, write
from trellis.deploy.tables import interpreted, tables

Outputs = NDArray[np.float32]
Runner = Callable[[nn.Module, Tensor, Path], Outputs]


def file(model: nn.Module, x: Tensor, folder: Path) -> Outputs:
    """The tables of a ``.trellis`` file, evaluated in numpy."""
    write(tables(model, x[:1]), folder / "model.trellis")
    return interpreted(read(folder / "model.trellis"), x.numpy())


def c(model: nn.Module, x: Tensor, folder: Path) -> Outputs:
    """The exported program, under sanitizers."""
    trellis.export_c(model, x[:1], folder)
    return program(folder, x, *SANITIZED)


def program(folder: Path, x: Tensor, *flags: str) -> Outputs:
    """What exported C prints for inputs."""
    built = compiled([folder / "model.c", folder / "main.c"], folder / "model", *flags)
    rows = "\n".join(",".join(map(repr, row.reshape(-1).tolist())) for row in x)
    done = ran(built, rows)
    assert done.returncode == 0 and not done.stderr, done.stderr[:3000]
    return np.array([line.split(",") for line in done.stdout.split()], np.float32)


def runtime(model: nn.Module, x: Tensor, folder: Path) -> Outputs:
    """`trellis.Runtime`, samples in lanes and one by one, which must agree with each other."""
    tool("gcc", "clang", "cc")
    trellis.export_c(model, x[:1], folder)
    found: Any = trellis.Runtime(folder / "model.trellis")
    together: Outputs = found.predict(x).reshape(len(x), -1)
    alone = np.stack([found.predict(sample).reshape(-1) for sample in x])
    np.testing.assert_allclose(alone, together, atol=1e-5 * float(np.abs(together).max()))
    return together


def compacted(model: nn.Module, x: Tensor, folder: Path) -> Outputs:
    with torch.no_grad():
        result: Outputs = trellis.compact(model, x[:1])(x).reshape(len(x), -1).numpy()
    return result


def compacted_file(model: nn.Module, x: Tensor, folder: Path) -> Outputs:
    """Tables take a compacted model as well as a masked one."""
    return file(trellis.compact(model, x[:1]), x, folder)


def wasm(model: nn.Module, x: Tensor, folder: Path) -> Outputs:
    """The same C built to WebAssembly, under node."""
    trellis.export_wasm(model, x[:1], folder)
    return under_node(folder, x.numpy())


def firmware(model: nn.Module, x: Tensor, folder: Path) -> Outputs:
    """The same C built for a Cortex-M4F, under an emulator."""
    trellis.export_c(model, x[:1], folder)
    return emulated(folder, x.numpy()).outputs


RUNNERS: dict[str, Runner] = {
    "file": file,
    "c": c,
    "runtime": runtime,
    "compacted": compacted,
    "file of compacted": compacted_file,
    "wasm": wasm,
    "firmware": firmware,
}
