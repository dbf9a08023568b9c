"""LSTM, GRU and plain recurrent layers, unrolled over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...errors import TrellisError
from ..builder import Builder
from ..export import aten, rules_for
from ..steps import Signal, Value, Weight
from .elementwise import as_signal
from .linear import linear
from .movement import stack

State = tuple[Signal, ...]
Cell = Callable[[Builder, Signal, State, Sequence[Weight]], State]


def _affine(build: Builder, x: Signal, weight: Weight, bias: Sequence[Weight], i: int) -> Signal:
    return linear(build, x, weight, bias[i] if bias else None)


def _parts(build: Builder, x: Signal, n: int) -> list[Signal]:
    size = x.shape[-1] // n
    return [build.gather(x, -1, torch.arange(i * size, (i + 1) * size)) for i in range(n)]


def lstm_cell(build: Builder, x: Signal, state: State, weights: Sequence[Weight]) -> State:
    """i, f, o = σ(·); g = tanh(·); c' = f·c + i·g; h' = o·tanh(c')."""
    h, c = state
    bias = weights[2:]
    both = build.join(
        _affine(build, x, weights[0], bias, 0), _affine(build, h, weights[1], bias, 1)
    )
    i, f, g, o = _parts(build, both, 4)
    c = build.join(build.gate(build.bias(f), c), build.gate(build.bias(i), g))
    return build.gate(build.bias(o), c), c


def gru_cell(build: Builder, x: Signal, state: State, weights: Sequence[Weight]) -> State:
    """r, z = σ(·); n = tanh(x_n + r·h_n); h' = (1 − z)·n + z·h."""
    (h,) = state
    bias = weights[2:]
    xr, xz, xn = _parts(build, _affine(build, x, weights[0], bias, 0), 3)
    hr, hz, hn = _parts(build, _affine(build, h, weights[1], bias, 1), 3)
    r, z = build.bias(build.join(xr, hr)), build.bias(build.join(xz, hz))
    n = build.join(xn, build.gate(r, hn))
    return (build.join(build.gate(z, n), build.gate(z, h)),)


def rnn_cell(build: Builder, x: Signal, state: State, weights: Sequence[Weight]) -> State:
    """h' = f(W x + V h), f(0) = 0."""
    bias = weights[2:]
    parts = (_affine(build, x, weights[0], bias, 0), _affine(build, state[0], weights[1], bias, 1))
    return (build.join(*parts),)


def unroll(
    build: Builder,
    cell: Cell,
    x: Signal,
    states: Sequence[Value],
    weights: Sequence[Weight],
    has_biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Signal, list[Signal]]:
    """Unroll a recurrent layer over x (T, B, I), with states (layers · directions, B, H).

    Returns the output and the last states.
    """
    if batch_first:
        x = build.permute(x, (1, 0, 2))
    per_cell = 4 if has_biases else 2
    directions = 2 if bidirectional else 1
    if len(weights) != layers * directions * per_cell:
        raise TrellisError("an LSTM with projections (proj_size) is not traced")
    sequence = [_time(build, x, t) for t in range(x.shape[0])]
    last: list[list[Signal]] = [[] for _ in states]
    for layer in range(layers):
        outputs: list[list[Signal]] = []
        for direction in range(directions):
            place = layer * directions + direction
            own = weights[place * per_cell : (place + 1) * per_cell]
            state: State = tuple(_time(build, as_signal(build, s), place) for s in states)
            steps = sequence[::-1] if direction else sequence
            seen = []
            for unit in steps:
                state = cell(build, unit, state, own)
                seen.append(state[0])
            outputs.append(seen[::-1] if direction else seen)
            for kept, value in zip(last, state, strict=True):
                kept.append(value)
        sequence = [
            parts[0] if len(parts) == 1 else build.cat(parts, -1)
            for parts in zip(*outputs, strict=True)
        ]
    out = stack(build, sequence, 1 if batch_first else 0)
    return out, [stack(build, values, 0) for values in last]


def _time(build: Builder, x: Signal, t: int) -> Signal:
    return build.reshape(build.gather(x, 0, torch.tensor([t])), x.shape[1:])


def _sequence_rule(name: str, cell: Cell) -> None:
    @rules_for(aten(name))
    def sequence(
        build: Builder,
        x: Value,
        states: Any,
        weights: Sequence[Weight],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> tuple[Signal, ...]:
        if isinstance(has_biases, list | tuple):
            raise TrellisError(f"{name}: packed sequences are not traced; pass a padded tensor")
        first = list(states) if isinstance(states, list | tuple) else [states]
        out, last = unroll(
            build, cell, as_signal(build, x), first, weights, has_biases, layers, bidirectional,
            batch_first,
        )  # fmt: skip
        return (out, *last)

    @rules_for(aten(f"{name}_cell"))
    def one(
        build: Builder,
        x: Value,
        state: Any,
        w: Weight,
        v: Weight,
        b: Weight | None = None,
        c: Weight | None = None,
    ) -> Any:
        first = tuple(state) if isinstance(state, list | tuple) else (state,)
        weights = [w, v] if b is None or c is None else [w, v, b, c]
        signals = tuple(as_signal(build, s) for s in first)
        out = cell(build, as_signal(build, x), signals, weights)
        return out if len(out) > 1 else out[0]


for _name, _cell in {
    "lstm": lstm_cell,
    "gru": gru_cell,
    "rnn_tanh": rnn_cell,
    "rnn_relu": rnn_cell,
}.items():
    _sequence_rule(_name, _cell)
