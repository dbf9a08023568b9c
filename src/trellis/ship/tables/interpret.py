"""Tables evaluated in numpy, a step at a time: what every faster run-time is compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .form import Step, Tables

Floats = NDArray[np.float32]
_AT_ONCE = 1 << 22  # numbers, so that large tables need little memory


def interpreted(tables: Tables, x: Floats) -> Floats:
    """(batch, inputs) -> (batch, outputs), in single precision."""
    memory = np.zeros((tables.size, len(x)), np.float32)
    memory[: tables.input_units] = x.reshape(len(x), -1).T
    for step in tables.steps:
        advance(step, memory)
    return np.ascontiguousarray(memory[tables.results].T)


def advance(step: Step, memory: Floats) -> None:
    """Compute one step on memory (size, batch)."""
    batch = memory.shape[1]
    results = np.empty((len(step.outs), batch), np.float32)
    for some, group, term in step.pieces(_AT_ONCE // max(batch, 1)):
        offsets = step.offsets[some][:, None]
        read = memory[step.terms[term] + offsets]  # (instances, terms, batch)
        if step.kind == "max":
            results[some] = read.max(axis=1)
            continue
        if step.kind == "dot":
            read *= memory[step.others[term] + offsets]
        weights = step.weights[term].astype(np.float32)
        total = np.einsum("ntb,nt->nb", read, weights) * step.scale[group][:, None]
        results[some] = total + step.bias[group][:, None]
    if step.adds:
        results += memory[step.outs]
    memory[step.outs] = step.act(results)
