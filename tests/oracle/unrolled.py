"""Fused recurrent modules, one step after another, with straight lines for their curves."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .lines import line, never_zero

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, State, tuple[Any, ...]], State]  # (input, state, weights) -> state


def lstm_cell(x: Tensor, state: State, weights: tuple[Any, ...]) -> State:
    h, c = state
    w, u, b1, b2 = weights
    i, f, g, o = (F.linear(x, w, b1) + F.linear(h, u, b2)).chunk(4, -1)
    c = never_zero(f) * c + never_zero(i) * g
    return never_zero(o) * c, c


def gru_cell(x: Tensor, state: State, weights: tuple[Any, ...]) -> State:
    (h,) = state
    w, u, b1, b2 = weights
    r, z, n = F.linear(x, w, b1).chunk(3, -1)
    r_h, z_h, n_h = F.linear(h, u, b2).chunk(3, -1)
    z = never_zero(z + z_h)
    return ((1 - z) * (n + never_zero(r + r_h) * n_h) + z * h,)


def rnn_cell(x: Tensor, state: State, weights: tuple[Any, ...]) -> State:
    (h,) = state
    w, u, b1, b2 = weights
    return (F.linear(x, w, b1) + F.linear(h, u, b2),)


def unroll(
    cell: Cell,
    x: Tensor,
    states: State,
    flat: list[Tensor],
    biases: bool,
    layers: int,
    both: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """The outputs of the last layer at every step, then the last states of all layers."""
    x = x.transpose(0, 1) if batch_first else x
    per_cell = 4 if biases else 2
    weights: Iterator[tuple[Any, ...]] = (
        (*flat[at : at + per_cell], *[None] * (4 - per_cell))
        for at in range(0, len(flat), per_cell)
    )
    last: list[State] = []
    for layer in range(layers):
        sides: list[Tensor] = []
        for side in range(2 if both else 1):
            own = next(weights)
            state = tuple(s[layer * (2 if both else 1) + side] for s in states)
            steps: list[Tensor] = []
            for step in reversed(x) if side else x:
                state = cell(step, state, own)
                steps.append(state[0])
            sides.append(torch.stack(steps[::-1] if side else steps))
            last.append(state)
        x = torch.cat(sides, -1)
    out = x.transpose(0, 1) if batch_first else x
    return (out, *(torch.stack(state) for state in zip(*last, strict=True)))


@line("lstm")
def lstm(
    x: Tensor, states: Any, flat: Any, biases: bool, layers: int, dropout: float, train: bool,
    both: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    return unroll(lstm_cell, x, tuple(states), flat, biases, layers, both, batch_first)


@line("gru")
def gru(
    x: Tensor, state: Tensor, flat: Any, biases: bool, layers: int, dropout: float, train: bool,
    both: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    return unroll(gru_cell, x, (state,), flat, biases, layers, both, batch_first)


@line("rnn_tanh rnn_relu")
def rnn(
    x: Tensor, state: Tensor, flat: Any, biases: bool, layers: int, dropout: float, train: bool,
    both: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    return unroll(rnn_cell, x, (state,), flat, biases, layers, both, batch_first)
