"""The sparse form of a network, and its reference interpreter in numpy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .activation import Activation
from .loop import Loop, advance_loop

KINDS = ("sum", "max", "dot")
VALUES = ("fp32", "fp16", "int8")


@dataclass(frozen=True, eq=False)
class Step:
    """Groups of rows that are computed together; none reads what another of them writes.

    Group g has ``fan[g]`` terms and ``count[g]`` instances. Instance n of it computes, of memory
    x, ``act(bias[g] + scale[g] · Σ weights[t] · x[terms[t] + offsets[n]])`` and writes it to
    ``x[outs[n]]``. A dot multiplies by ``x[others[t] + offsets[n]]`` too; a max takes the largest
    term and has no weights. A step that ``adds`` adds what ``x[outs[n]]`` was to the sum.
    """

    kind: str
    act: Activation
    fan: NDArray[np.int64]  # (groups,), ascending
    count: NDArray[np.int64]  # (groups,)
    bias: NDArray[np.float32]  # (groups,)
    scale: NDArray[np.float32]  # (groups,): 1 unless weights are int8
    terms: NDArray[np.int64]  # (Σ fan,)
    others: NDArray[np.int64]  # (Σ fan,) of a dot, else empty
    weights: NDArray[Any]  # (Σ fan,) float32, float16 or int8; empty of a max
    offsets: NDArray[np.int64]  # (Σ count,)
    outs: NDArray[np.int64]  # (Σ count,)
    adds: bool = False

    @property
    def uses(self) -> int:
        """Number of multiplications."""
        return int((self.fan * self.count).sum())

    @property
    def bands(self) -> list[tuple[int, int, int]]:
        """Runs of groups with the same fan and count: (fan, count, number of groups)."""
        alike = zip(self.fan.tolist(), self.count.tolist(), strict=True)
        return [(*both, sum(1 for _ in some)) for both, some in groupby(alike)]

    def pieces(self, most: int) -> Iterator[tuple[slice, NDArray[np.int64], NDArray[np.int64]]]:
        """Instances of equal fan, with about ``most`` terms at a time: which they are, the group
        of each, and where their terms lie in the tables, (instances, fan)."""
        group = np.repeat(np.arange(len(self.fan)), self.count)
        firsts = np.cumsum(self.fan) - self.fan
        bounds = np.flatnonzero(np.diff(self.fan[group])) + 1
        for begin, end in zip([0, *bounds], [*bounds, len(group)], strict=True):
            width = int(self.fan[group[begin]])
            step = max(most // max(width, 1), 1)
            for first in range(int(begin), int(end), step):
                some = slice(first, min(first + step, int(end)))
                yield some, group[some], firsts[group[some]][:, None] + np.arange(width)

    def not_finite(self) -> str | None:
        """Return the name of an array that is not finite in float32, or None."""
        for name in ("bias", "scale", "weights"):
            if not np.isfinite(getattr(self, name)).all():
                return name
        if len(self.weights):
            with np.errstate(over="ignore"):
                scaled = self.weights.astype(np.float32) * self.scale[self.group_of_term()]
            if not np.isfinite(scaled).all():
                return "scaled weight"
        return None

    def group_of_term(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.fan)), self.fan)


@dataclass(frozen=True, eq=False)
class Tables:
    """A network as steps over one memory of ``size`` numbers, the inputs at its beginning."""

    inputs: tuple[tuple[int, ...], ...]  # shapes, the batch aside
    outputs: tuple[tuple[int, ...], ...]
    size: int
    steps: tuple[Step | Loop, ...]
    results: NDArray[np.int64]  # where the outputs lie at the end
    values: str = "fp32"
    notes: dict[str, Any] = field(default_factory=dict)
    choices: tuple[Any, ...] = ()  # how each layer over planes is stored, and why; not in files

    @property
    def input_units(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.inputs)

    @property
    def output_units(self) -> int:
        return len(self.results)

    @property
    def weights(self) -> int:
        """Number of stored weights."""
        return sum(len(step.weights) for step in self.steps)

    @property
    def loops(self) -> list[Loop]:
        return [step for step in self.steps if isinstance(step, Loop)]

    @property
    def uses(self) -> int:
        return sum(step.uses for step in self.steps)

    @property
    def units(self) -> int:
        """Number of computed units."""
        return sum(
            step.shape[0] * step.positions if isinstance(step, Loop) else len(step.outs)
            for step in self.steps
        )


# Tables evaluated in numpy, step by step: the reference for every faster run-time.


Floats = NDArray[np.float32]
_AT_ONCE = 1 << 22  # numbers, so that large tables need little memory


def interpreted(tables: Tables, x: Floats) -> Floats:
    """Evaluate tables, (batch, inputs) to (batch, outputs), in single precision."""
    memory = np.zeros((tables.size, len(x)), np.float32)
    memory[: tables.input_units] = x.reshape(len(x), -1).T
    for step in tables.steps:
        advance(step, memory)
    return np.ascontiguousarray(memory[tables.results].T)


def advance(step: Step | Loop, memory: Floats) -> None:
    """Compute one step on memory (size, batch)."""
    if isinstance(step, Loop):
        advance_loop(step, memory)
        return
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
