"""Fed nonsense, `prune` says what it was given and what to do, and changes nothing."""

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import nn

from tests.zoo import ZOO
from trellis.errors import TrellisError
from trellis.graph.trellis import trace
from trellis.methods.budget import budget
from trellis.methods.prune import prune

X = torch.zeros(1, 4)


def dense() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


WEIGHTS = {"0.weight": torch.ones(6, 4), "2.weight": torch.ones(3, 6)}

VITERBI: dict[str, Any] = {"method": "viterbi"}
CHAINS = {"method": "chains"}

NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"sparsity": 1.0}, "sparsity=1.0 is out of range"),
    ({"sparsity": 1}, "sparsity=1 is out of range"),
    ({"sparsity": -1}, "sparsity=-1 is out of range"),
    ({"sparsity": math.nan}, "sparsity=nan is out of range"),
    ({"sparsity": math.inf}, "sparsity=inf is out of range"),
    ({"sparsity": "x"}, "sparsity='x' is not a number"),
    ({"sparsity": True}, "sparsity=True is not a number"),
    ({"sparsity": 99}, "sparsity=99 is out of range"),
    ({"sparsity": 0.999}, "a budget of 0 of 42 connections keeps nothing"),
    ({"keep": 0}, "a budget of 0 of 42"),
    ({"keep": -1}, "a budget of -1 of 42"),
    ({"keep": 1.5}, "keep=1.5 is not a whole number"),
    ({"keep": True}, "keep=True is not a whole number"),
    ({"keep": "7"}, "keep='7' is not a whole number"),
    ({"keep": 43}, "keep=43 is more than the 42 connections there are"),
    ({}, "give either sparsity .* or keep .*sparsity=None, keep=None"),
    ({"sparsity": 0.5, "keep": 3}, "got sparsity=0.5, keep=3"),
    ({"method": "best"}, r"expected a method \(chains, closed, magnitude, .*\), got 'best'"),
    ({"method": None}, "expected a method .*, got None"),
    ({"method": "magnitude", "scope": "rows"}, "scope='rows' is unknown: expected one of global"),
    ({"method": "magnitude", "scope": 3}, "scope=3 is unknown"),
    ({"method": "magnitude", "scope": {"1.weight": 2}}, "scope names '1.weight', .*0.weight"),
    ({"method": "magnitude", "scope": {"0.weight": 25}}, "25 of '0.weight'; it has 24"),
    ({"method": "magnitude", "scope": {"0.weight": 2.5}}, "2.5 of '0.weight'"),
    (VITERBI | {"scope": "layer"}, "'viterbi' has no option 'scope'.*to magnitude, closed, random"),
    ({"method": "synflow", "strength": 3}, "'synflow' has no option 'strength'; it has no options"),
    (CHAINS | {"scope": "layer"}, "options: surrogate, inverse_alpha, row_normalize"),
    (CHAINS | {"surrogate": "both"}, "expected 'local' or 'global' for surrogate, got 'both'"),
    (CHAINS | {"inverse_alpha": 0.5}, "from 1 to infinity for inverse_alpha, got 0.5"),
    (CHAINS | {"inverse_alpha": math.nan}, "for inverse_alpha, got nan"),
    (CHAINS | {"inverse_alpha": "x"}, "for inverse_alpha, got 'x'"),
    ({"consistent": "yes"}, "consistent='yes' must be None, True or False"),
    ({"consistent": 1}, "consistent=1 must be None, True or False"),
    ({"stochastic": "no"}, "stochastic='no' must be True or False"),
    ({"stochastic": None}, "stochastic=None must be True or False"),
    ({"cover_outputs": "no"}, "cover_outputs='no' must be True or False"),
    ({"cover_outputs": 0}, "cover_outputs=0 must be True or False"),
    (CHAINS | {"row_normalize": "yes"}, "expected True or False for row_normalize, got 'yes'"),
    ({"saliency": "taylor"}, "saliency='taylor' needs data"),
    ({"saliency": 3}, "saliency=3 is neither"),
    ({"saliency": {"0.weight": torch.ones(6, 4)}}, "no tensor for '2.weight'"),
    ({"saliency": WEIGHTS | {"0.weight": torch.ones(4, 6)}}, r"\(4, 6\); it must be .*\(6, 4\)"),
    ({"saliency": WEIGHTS | {"0.weight": 3}}, "saliency of '0.weight' is int"),
    ({"saliency": lambda name, w: w.sum()}, "saliency of '0.weight'"),
    ({"saliency": WEIGHTS | {"0.weight": torch.full((6, 4), math.nan)}}, "24 values .* nan"),
    (VITERBI | {"saliency": WEIGHTS | {"0.weight": -torch.ones(6, 4)}}, "'0.weight' has negative"),
    ({"ignore": "body.*"}, "ignore pattern 'body.*' fits no parameter; there are '0.weight'"),
    ({"ignore": ["*weight"]}, "Sequential has no prunable weights"),
]


@pytest.mark.parametrize(("options", "words"), NONSENSE, ids=[str(i) for i in range(len(NONSENSE))])
def test_nonsense_is_quoted(options: dict[str, Any], words: str) -> None:
    model = dense()
    counted = {"sparsity", "keep"} & set(options) or not options
    given = options if counted else {"sparsity": 0.5} | options
    with pytest.raises(TrellisError, match=words):
        prune(model, X, **given)
    untouched = dense()
    assert list(model.state_dict()) == list(untouched.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), untouched.parameters(),
                                                 strict=True))  # fmt: skip


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("method", ["viterbi", "magnitude", "synflow", "chains", "phew", "random"])
def test_weights_that_are_not_finite(method: str, bad: float) -> None:
    model = dense()
    with torch.no_grad():
        model.get_parameter("2.weight")[1, 1] = bad
    with pytest.raises(TrellisError, match=r"weights of '2.weight' hold 1 values .* not finite"):
        prune(model, X, sparsity=0.5, method=method)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["lenet", "resnet18", "gpt2", "gcn", "lstm_stacked", "gat_conv"])
def test_weights_that_are_not_finite_wherever_they_stand(name: str, bad: float) -> None:
    model, inputs = ZOO[name]()
    net = trace(model, inputs)
    generator = torch.Generator().manual_seed(4)
    for parameter in list(net.connections):
        weight = model.get_parameter(parameter).detach().view(-1)
        place = int(torch.randint(len(weight), (1,), generator=generator))
        before = float(weight[place])
        weight[place] = bad
        with pytest.raises(TrellisError, match=rf"'{parameter}' hold 1 values .* not finite"):
            prune(net, sparsity=0.5)
        weight[place] = before
    assert prune(net, sparsity=0.5).kept


def test_weights_that_are_not_finite_and_that_no_path_uses() -> None:
    class Partly(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight[:2].T

    model = Partly(4, 3, bias=False)
    with torch.no_grad():
        model.weight[2, 1] = math.nan
    with pytest.raises(TrellisError, match=r"weights of 'weight' hold 1 values .* not finite"):
        prune(model, X, sparsity=0.5)


@pytest.mark.parametrize("method", ["viterbi", "magnitude", "chains", "phew"])
def test_a_budget_too_small_names_one_that_works(method: str) -> None:
    for keep in (1, 2, 3):
        with pytest.raises(TrellisError) as caught:
            prune(dense(), X, keep=keep, method=method, consistent=True)
        message = str(caught.value)
        assert f"a budget of {keep} is too small to reach all 3 outputs" in message
        assert "cover_outputs=False" in message
        named = re.search(r"keep=(\d+) works", message)
        assert named is not None and int(named[1]) == 4
    assert prune(dense(), X, keep=4, method=method, consistent=True).kept == 4


def test_a_path_of_three_needs_three() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    with pytest.raises(TrellisError, match=r"a budget of 2 is too small for a path .*keep=3 works"):
        prune(model, torch.zeros(1, 2), keep=2, cover_outputs=False, cover_layers=False)
    with pytest.raises(TrellisError, match=r"keep all 3 layers alive; keep=3 works"):
        prune(model, torch.zeros(1, 2), keep=2, cover_outputs=False)
    assert prune(model, torch.zeros(1, 2), keep=3, cover_outputs=False).kept == 3


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


def test_beside_a_bare_wire_the_shortest_path_with_connections_is_named() -> None:
    with pytest.raises(TrellisError, match=r"a budget of 1 is too small .*keep=2 works"):
        prune(Residual(), torch.zeros(1, 3), keep=1)
    assert prune(Residual(), torch.zeros(1, 3), keep=2).kept == 2


@pytest.mark.parametrize(
    ("total", "sparsity", "kept"),
    [(10, 0.9, 1), (2139024, 0.999, 2139), (2139024, 0.99, 21390), (10, 0.0, 10), (3, 0.5, 1),
     (1000, 0.001, 999), (100, 0.29, 71), (100, Decimal("0.29"), 71), (9, Fraction(2, 3), 3),
     (10**12, 0.999999, 10**6), (7, 0, 7)],
)  # fmt: skip
def test_the_budget_is_exact_decimal_arithmetic(total: int, sparsity: Any, kept: int) -> None:
    assert budget(total, sparsity=sparsity) == kept


def test_a_head_that_begins_with_zeros_and_is_ignored_is_spoken_of() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    nn.init.zeros_(model[2].weight)  # type: ignore[arg-type]
    with pytest.raises(TrellisError, match="Is all of a layer zero"):
        prune(model, torch.zeros(1, 4), keep=6, ignore="2.weight")
