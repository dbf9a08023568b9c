"""Recurrent layers: hidden units that reach no output go, and nothing else changes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import trellis
from tests.deploy.compact.agreement import apart, outputs
from trellis.masks import plain_tensors

CELLS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": nn.RNN}


class Reader(nn.Module):
    """A recurrent layer between dense ones, of which so much is read."""

    def __init__(self, kind: str, reads: str, given: bool, **options: Any) -> None:
        super().__init__()
        if kind in ("tanh", "relu"):
            options["nonlinearity"] = kind
        self.first = nn.Linear(5, 6)
        self.cell = CELLS[kind](6, 7, **options)
        self.reads, self.given = reads, given
        width = 7 * (2 if reads == "output" and self.cell.bidirectional else 1)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor, *states: Tensor) -> Tensor:
        start = None
        if self.given:  # (batch, places, H) as given; recurrent layers have places first
            turned = tuple(state.transpose(0, 1) for state in states)
            start = turned if isinstance(self.cell, nn.LSTM) else turned[0]
        x = torch.relu(self.first(x))
        if not self.cell.batch_first:
            x = x.transpose(0, 1)
        output, last = self.cell(x, start)
        if self.reads == "output":
            steps = output if self.cell.batch_first else output.transpose(0, 1)
            return self.head(steps[:, 1] + steps[:, -1])
        hidden = last[self.reads == "cell"] if isinstance(self.cell, nn.LSTM) else last
        return self.head(hidden[-1])


def built(
    kind: str, reads: str, given: bool, seed: int, sparsity: float, **options: Any
) -> tuple[Reader, tuple[Tensor, ...], trellis.Compacted]:
    """A pruned model, inputs for a batch of three, and its compacted form."""
    torch.manual_seed(seed)
    model = Reader(kind, reads, given, **options).double()
    places = model.cell.num_layers * (2 if model.cell.bidirectional else 1)
    states = [torch.randn(3, places, 7) for _ in range((2 if kind == "lstm" else 1) * given)]
    inputs = tuple(t.double() for t in (torch.randn(3, 4, 5), *states))
    one = tuple(t[:1] for t in inputs)
    trellis.prune(model, one, sparsity=sparsity, method="random", seed=seed, consistent=False)
    return model, inputs, trellis.compact(model, one)


@given(
    kind=st.sampled_from(list(CELLS)),
    reads=st.sampled_from(["output", "last", "cell"]),
    given_states=st.booleans(),
    seed=st.integers(0, 1000),
    sparsity=st.sampled_from([0.3, 0.7, 0.85, 0.95]),
    layers=st.integers(1, 3),
    both=st.booleans(),
    first=st.booleans(),
    bias=st.booleans(),
)
@settings(deadline=None, max_examples=25)
def test_the_same_function(
    kind: str, reads: str, given_states: bool, seed: int, sparsity: float, layers: int, both: bool,
    first: bool, bias: bool,
) -> None:  # fmt: skip
    model, inputs, small = built(
        kind, reads, given_states, seed, sparsity,
        num_layers=layers, bidirectional=both, batch_first=first, bias=bias,
    )  # fmt: skip
    assert apart(outputs(model, inputs), outputs(small, inputs)) < 1e-9
    assert small.report.after.units <= small.report.before.units
    audit = trellis.audit(small, tuple(t[:1] for t in inputs))
    told = re.search(r"cell: ([\d,]+) dead connections", str(small))
    assert audit.kept - audit.live == (int(told[1].replace(",", "")) if told else 0)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("both", [False, True], ids=["forward", "both"])
def test_exactly_what_reaches_the_output_is_left(kind: str, both: bool) -> None:
    """Of two layers, unit 0 of the second reads unit 1 of the first, which reads input 2 and its
    own unit 3; unit 2 reads all that, and nothing reads it."""
    model = Reader(kind, "output", False, num_layers=2, bidirectional=both, batch_first=True)
    gates = model.cell.weight_hh_l0.shape[0] // 7
    with torch.no_grad():
        for name, p in model.cell.named_parameters():
            if "weight" in name:
                p.zero_()
        for gate in range(gates):
            for end in ["", "_reverse"][: 1 + both]:
                below, above = (getattr(model.cell, f"weight_ih_l{i}{end}") for i in (0, 1))
                state = getattr(model.cell, f"weight_hh_l0{end}")
                below[gate * 7 + 1, 2] = below[gate * 7 + 3, 2] = state[gate * 7 + 1, 3] = 1
                below[gate * 7 + 2, 2] = above[gate * 7 + 2, 3] = above[gate * 7, 1] = 1
                if both:
                    above[gate * 7, 7 + 1] = 1
        model.head.weight[:] = 0
        model.head.weight[:, [0, 7] if both else [0]] = 1
    x = torch.randn(1, 4, 5)
    small = trellis.compact(model, x)
    assert apart(outputs(model, (x,)), outputs(small, (x,))) < 1e-5
    shapes = {name: tuple(t.shape) for name, t in plain_tensors(small).items()}
    assert shapes["cell.weight_ih_l0"] == (2 * gates, 1)
    assert shapes["cell.weight_hh_l0"] == (2 * gates, 2)
    assert shapes["cell.weight_ih_l1"] == (gates, 4 if both else 2)
    assert shapes["cell.weight_hh_l1"] == (gates, 1)
    assert shapes["cell.bias_hh_l1"] == (gates,)
    assert shapes["first.weight"] == (1, 5)


def test_a_unit_that_biases_move_stays() -> None:
    """No input reaches it, and yet it is another at every step."""
    model = Reader("gru", "output", False, num_layers=1, batch_first=True).double()
    with torch.no_grad():
        model.cell.weight_ih_l0.view(3, 7, 6)[:, 0] = 0
        model.cell.weight_hh_l0.view(3, 7, 7)[:, 0, 1:] = 0
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    small = trellis.compact(model, x[:1])
    assert plain_tensors(small)["cell.weight_hh_l0"].shape == (21, 7)
    assert apart(outputs(model, (x,)), outputs(small, (x,))) < 1e-9


def test_dense_layers_are_left_as_they_are() -> None:
    model = Reader("lstm", "output", False, num_layers=2, batch_first=True)
    small = trellis.compact(model, torch.zeros(1, 4, 5))
    assert small.report.after.connections == small.report.before.connections
    assert [op.target for op in small.program.ops].count("aten.lstm.input") == 1
