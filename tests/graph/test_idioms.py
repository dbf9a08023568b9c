"""Ways in which real models use weights, masks and integers, each with its right answer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trellis


class Model(nn.Module):
    """A forward function over some parameters and layers."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> Any:
        return self.run(self, *inputs)


def free(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.rand(shape) + 0.5)


def layer(tails: int, heads: int) -> nn.Linear:
    return nn.Linear(tails, heads, bias=False)


def found(model: nn.Module, *inputs: Tensor) -> tuple[int, int, int]:
    audit = trellis.audit(model, inputs)
    return audit.total, audit.live, audit.outputs_reached


X = torch.randn(1, 6)
IDS = torch.tensor([[1, 2, 5]])

COMPUTED = {
    "low-rank adapter": (
        Model(lambda s, x: F.linear(x, s.w + s.b @ s.a), w=free(5, 6), a=free(2, 6), b=free(5, 2)),
        (52, 52, 5),
    ),
    "normalised weight": (
        Model(lambda s, x: F.linear(x, s.w / s.w.norm()), w=free(5, 6)),
        (30, 30, 5),
    ),
    "cosine head": (
        Model(lambda s, x: F.linear(F.normalize(x), F.normalize(s.w)), w=free(5, 6)),
        (30, 30, 5),
    ),
    "sum of two": (
        Model(lambda s, x: F.linear(x, s.w + s.v.exp()), w=free(5, 6), v=free(5, 6)),
        (60, 60, 5),
    ),
    "scale plus one": (
        Model(lambda s, x: s.o(F.rms_norm(x, (6,)) * (1 + s.w)), w=free(6), o=layer(6, 2)),
        (12, 12, 2),
    ),
    "learned temperature": (
        Model(lambda s, x: s.o(x) * s.w.exp(), w=free(1), o=layer(6, 2)),
        (12, 12, 2),
    ),
    "scaled position": (
        Model(lambda s, x: s.o(x + s.p * s.q), p=free(1, 6), q=free(1), o=layer(6, 2)),
        (12, 12, 2),
    ),
    "computed bias": (
        Model(lambda s, x: s.o(x) + (s.p @ s.q)[0], p=free(3, 4), q=free(4, 2), o=layer(6, 2)),
        (12, 12, 2),
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_weights_computed_from_weights(name: str) -> None:
    model, expected = COMPUTED[name]
    assert found(model, X) == expected


def test_a_scale_per_channel_holds_no_connections() -> None:
    assert found(Model(lambda s, x: s.g * x, g=free(3, 1, 1)), torch.randn(1, 3, 4, 4)) == (
        0,
        0,
        48,
    )


def test_rows_of_a_normalised_weight_that_are_zero_reach_nothing() -> None:
    model = Model(lambda s, x: F.linear(x, s.w / s.w.norm()), w=free(5, 6))
    with torch.no_grad():
        model.get_parameter("w")[1:] = 0
    assert found(model, X) == (30, 6, 1)


INTEGERS = {
    "hashed ids": (
        Model(lambda s, i: s.o(s.e(((i * 31) ^ (i >> 2)) % 10).mean(1)), e=nn.Embedding(10, 4),
              o=layer(4, 3)),
        IDS, (52, 52, 3),
    ),
    "one-hot": (
        Model(lambda s, i: s.o(F.one_hot(i, 10).float().mean(1)), o=layer(10, 3)), IDS, (30, 30, 3)
    ),
    "booleans as floats": (
        Model(lambda s, b: s.o(b.float()), o=layer(4, 3)),
        torch.tensor([[True, False, True, True]]), (12, 12, 3),
    ),
    "an integer times a constant": (
        Model(lambda s, t: s.o(torch.arange(1.0, 5.0) * t[:, None]), o=layer(4, 3)),
        torch.tensor([3]), (12, 12, 3),
    ),
    "rows of a parameter": (
        Model(lambda s, i: s.o(s.e[i].sum(1)), e=free(10, 3), o=layer(3, 2)),
        torch.tensor([[1, 4]]), (36, 36, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_data_where_they_become_numbers(name: str) -> None:
    model, inputs, expected = INTEGERS[name]
    assert found(model, inputs) == expected


LATER = torch.ones(3, 3).triu(1)
MASKED: dict[str, Callable[[Tensor], Tensor]] = {
    "filled": lambda a: a.masked_fill(LATER > 0, -float("inf")).softmax(-1),
    "subtracted": lambda a: (a - 1e9 * LATER).softmax(-1),
    "multiplied and subtracted": lambda a: (a * (1 - LATER) - 1e10 * LATER).softmax(-1),
    "exponential": lambda a: (lambda e: e / e.sum(-1, keepdim=True))((a + LATER * -1e9).exp()),
    "sigmoid": lambda a: a.masked_fill(LATER > 0, -float("inf")).sigmoid(),
}


@pytest.mark.parametrize("form", MASKED)
def test_what_a_causal_mask_hides_is_dead(form: str) -> None:
    """The first position sees the values of the first alone."""

    def first(s: Any, x: Tensor) -> Tensor:
        values = torch.stack([F.linear(x[i], s.v[i]) for i in range(3)])
        return (MASKED[form](x @ x.t()) @ values)[0]

    live = trellis.audit(Model(first, v=free(3, 2, 2)), torch.randn(3, 2)).live_masks["v"]
    assert [int(part.sum()) for part in live] == [4, 0, 0]


def test_a_shift_of_all_scores_hides_nothing() -> None:
    model = Model(lambda s, x: (s.o(x) - 20000.0).softmax(-1), o=layer(6, 4))
    assert found(model, X) == (24, 24, 4)


def test_values_of_the_example_do_not_matter_for_what_a_batch_is() -> None:
    model = Model(lambda s, x: s.c(x.t()[None])[0].t(), c=nn.Conv1d(4, 3, 3, padding=1, bias=False))
    assert found(model, torch.zeros(5, 4)) == found(model, torch.randn(5, 4)) == (36, 36, 15)


def test_an_audit_of_a_batch_leaves_counters_alone() -> None:
    class Counting(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.o = layer(4, 2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.o(x)

    model = Counting()
    assert found(model, torch.randn(4, 4)) == (8, 8, 2)
    assert float(model.calls) == 0


def test_an_empty_slice_adds_nothing() -> None:
    """As rotary embeddings over all features are written."""

    class Rotary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            out: Tensor = self.last(torch.cat([h[..., :8], h[..., 8:]], -1))
            return out

    audit = trellis.audit(Rotary(), torch.zeros(1, 4))
    assert audit.live == audit.total == 32 + 24
