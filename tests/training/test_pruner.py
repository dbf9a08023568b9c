"""A pruner in a training loop: what it promises at every renewal, and what it refuses."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import trellis
from trellis import Pruner, Schedule
from trellis.errors import TrellisError
from trellis.training.pruner import Renewal
from trellis.training.regrowth import plenty

from .gradual import IN, OUT, adam, example, gradual, guaranteed, learn, network, same, sgd, states

ONE_SHOT = Schedule("one-shot")
LINEAR = Schedule("linear", end=100)
CHOICES: dict[str, dict[str, Any]] = {
    method: {"method": method} for method in trellis.methods.available()
} | {
    "by layer": {"method": "magnitude", "scope": "layer", "consistent": False},
    "lamp": {"method": "magnitude", "scope": "lamp"},
    "counts": {"method": "magnitude", "scope": {"0.weight": 40, "3.weight": 31, "5.weight": 7}},
    "as promised": {"method": "synflow", "consistent": None},
    "stochastic": {"stochastic": True, "seed": 3},
    "own saliency": {"saliency": lambda name, weight: weight**2},
    "global surrogate": {"method": "chains", "surrogate": "global", "inverse_alpha": 50.0},
    "ignoring": {"ignore": "0.*"},
    "not all outputs": {"cover_outputs": False, "keep": 12},
}


@pytest.mark.parametrize("optimizer", [sgd, adam])
@pytest.mark.parametrize("curve", ["linear", "cubic", "geometric"])
def test_at_every_renewal_the_budget_is_exact_and_everything_lives(
    curve: str, optimizer: Any
) -> None:
    model = network()
    schedule = Schedule(curve, begin=2, end=9, every=3)
    pruner = Pruner(model, example(), sparsity=0.95, schedule=schedule)
    before = pruner.masks
    seen: list[Renewal] = []

    def watch(renewal: Renewal) -> None:
        nonlocal before
        guaranteed(pruner)
        assert (renewal.budget, renewal.kept) == (pruner.budget, pruner.kept)
        now = pruner.masks
        assert not any(bool((mask & ~before[name]).any()) for name, mask in now.items())
        assert trellis.masks_of(model) == now
        before = now
        seen.append(renewal)

    learn(model, optimizer(model), pruner, range(11), watch)
    assert [renewal.step for renewal in seen] == [5, 8, 9]
    assert pruner.done and pruner.step() is None
    assert (pruner.kept, pruner.total) == (37, 752)


@pytest.mark.parametrize("name", CHOICES)
def test_one_shot_is_what_prune_keeps(name: str) -> None:
    options = dict(CHOICES[name])
    if isinstance(scope := options.get("scope"), dict):
        options["keep"] = sum(scope.values())
    size = {"keep": options.pop("keep")} if "keep" in options else {"sparsity": 0.9}
    pruner = Pruner(network(), example(), schedule=ONE_SHOT, **size, **options)
    consistent = {"consistent": True} | options
    masks = trellis.prune(network(), example(), **size, **consistent)
    assert pruner.done and pruner.masks == masks
    assert pruner.masks.provenance == masks.provenance


@pytest.mark.parametrize("name", [name for name in CHOICES if name != "counts"])
def test_every_option_is_nested_and_exact_over_time(name: str) -> None:
    options = dict(CHOICES[name])
    model = network()
    size = {"keep": options.pop("keep")} if "keep" in options else {"sparsity": 0.9}
    pruner = Pruner(model, example(), schedule=Schedule("cubic", end=4), **size, **options)
    before = pruner.masks

    def watch(renewal: Renewal) -> None:
        nonlocal before
        assert renewal.kept == renewal.budget
        now = pruner.masks
        assert not any(bool((mask & ~before[name]).any()) for name, mask in now.items())
        before = now
        if pruner.options.closes:  # an audit counts what is ignored, too
            live = trellis.audit(pruner.net).live_masks
            assert not any(bool((mask & ~live[name]).any()) for name, mask in now.items())

    learn(model, sgd(model), pruner, range(4), watch)
    assert pruner.done


@settings(max_examples=12)
@given(st.lists(st.integers(2, 6), min_size=3, max_size=4), st.integers(0, 2**16))
def test_the_smallest_budget_is_reached_without_an_error_on_the_way(
    widths: list[int], seed: int
) -> None:
    """Networks that reach their outputs by paths of their own have no smaller ones inside."""
    torch.manual_seed(seed)
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))
    x = torch.zeros(1, widths[0])
    try:
        trellis.prune(nn.Sequential(*model), x, keep=1)
    except TrellisError as error:
        smallest = int(str(error).split("keep=")[1].split()[0])
    schedule = Schedule("linear", end=6)
    pruner = Pruner(model, x, keep=smallest, schedule=schedule)
    assert smallest < (plenty(pruner.net, pruner.options) or 0)
    optimizer = sgd(model)
    before = pruner.masks
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(4, widths[0])).square().mean().backward()
        optimizer.step()
        pruner.step()
        audit, now = trellis.audit(pruner.net), pruner.masks
        assert audit.live_fraction == 1.0 and audit.outputs_reached == audit.outputs
        assert not any(bool((mask & ~before[name]).any()) for name, mask in now.items())
        before = now
    assert pruner.kept == smallest


@pytest.mark.parametrize("optimizer", [sgd, adam])
def test_no_optimizer_revives_what_is_pruned(optimizer: Any) -> None:
    model = network()
    pruner = gradual(model, end=4)
    trained = optimizer(model)
    learn(model, trained, pruner, range(4))
    masks = pruner.masks
    learn(model, trained, pruner, range(4, 10))
    weights = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    for name, mask in masks.items():
        weight = weights[name.removesuffix(".weight")].weight
        assert bool((weight[~mask] == 0).all())
        assert not torch.signbit(weight[~mask]).any()
    outputs = model.eval()(torch.ones(2, IN))
    masks.bake(model)
    assert torch.equal(model(torch.ones(2, IN)), outputs)
    state = model.state_dict()
    assert all(bool((state[name][~mask] == 0).all()) for name, mask in masks.items())


def test_what_is_pruned_is_stored_as_zero() -> None:
    model = network()
    pruner = gradual(model, end=2)
    learn(model, torch.optim.SGD(model.parameters(), lr=0.1), pruner, range(4))
    for name, mask in pruner.masks.items():
        stored = model.get_parameter(f"{name[:-7]}.parametrizations.weight.original")
        assert bool((stored[~mask] == 0).all()) and bool((stored[mask] != 0).all())


def test_tracing_and_renewing_leave_mode_statistics_and_gradients_alone() -> None:
    model = network()
    model[3].eval()
    state = states(model)
    pruner = gradual(model, every=1)
    modes = [module.training for module in model if not isinstance(module, nn.Sequential)]
    assert modes == [True, True, True, False, True, True]
    plain = pruner.masks.plain_state_dict(model)
    assert same({name: plain[name] for name in state}, state)
    model(torch.randn(4, IN)).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    statistics = model.get_buffer("1.running_mean").clone()
    assert pruner.step() is not None
    assert torch.equal(model.get_buffer("1.running_mean"), statistics)
    assert [module.training for module in model] == modes
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.equal(parameter.grad, gradients[name])


class Tied(nn.Module):
    """x [b, 12] -> [b, 12], by one matrix there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.there = nn.Linear(IN, IN, bias=False)
        self.back = nn.Linear(IN, IN, bias=False)
        self.back.weight = self.there.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.back(torch.relu(self.there(x)))


@pytest.mark.parametrize("regrow", [0.0, 0.4])
def test_a_tied_parameter_stays_tied(regrow: float) -> None:
    model = Tied()
    schedule = Schedule("linear", end=6)
    pruner = Pruner(model, example(), sparsity=0.6, schedule=schedule, regrow=regrow)
    optimizer = sgd(model)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(8, IN)).square().sum().backward()
        optimizer.step()
        pruner.step()
        guaranteed(pruner)
        assert torch.equal(model.there.weight, model.back.weight)
    assert len(list(model.parameters())) == 1 and list(pruner.masks) == ["there.weight"]
    pruner.masks.bake(model)
    assert model.there.weight is model.back.weight


def test_pruning_starts_from_what_the_model_keeps() -> None:
    model = network()
    first = trellis.prune(model, example(), sparsity=0.5)
    pruner = gradual(model)
    assert pruner.masks == first and pruner.budget == pruner.total
    learn(model, sgd(model), pruner)
    assert not any(bool((mask & ~first[name]).any()) for name, mask in pruner.masks.items())
    guaranteed(pruner)


def test_a_trellis_stands_in_for_model_and_inputs() -> None:
    net = trellis.trace(network(), example())
    pruner = Pruner(net, sparsity=0.9, schedule=ONE_SHOT)
    assert pruner.net is net and pruner.model is net.model


def test_a_weight_computed_from_others_is_pruned_but_not_regrown() -> None:
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(IN, 8)), nn.ReLU(), nn.Linear(8, OUT)
    )
    with pytest.raises(TrellisError, match=r"'0\.weight' is computed by _WeightNorm"):
        gradual(model, regrow=0.2)
    pruner = gradual(model)
    learn(model, sgd(model), pruner, watch=lambda _: guaranteed(pruner))
    assert pruner.done


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"sparsity": 0.995},
        "a budget of 3 is too small to reach all 5 outputs and keep all .* alive; keep=",
    ),
    ({"sparsity": 1.5}, r"sparsity=1\.5 is out of range"),
    ({"keep": 50}, "give either sparsity .* or keep"),
    ({"schedule": "cubic"}, "expected a trellis.Schedule, got schedule='cubic'; give one such as"),
    (
        {"schedule": Schedule("linear", end=5, initial_sparsity=0.95)},
        "starts at a sparsity of 0.95",
    ),
    ({"regrow": 1.0}, "got regrow=1.0; it is a share"),
    ({"regrow": True}, "got regrow=True; it is a share"),
    ({"methods": "viterbi"}, "method 'closed' has no option 'methods'"),
    ({"method": "best"}, "expected a method .* got 'best'"),
    ({"method": "viterbi", "scope": "layer"}, "method 'viterbi' has no option 'scope'"),
    ({"method": "magnitude", "scope": "leyer"}, "scope='leyer' is unknown"),
    ({"method": "magnitude", "scope": {"0.weight": 9}}, "fits one budget only"),
    ({"ignore": "9.*"}, r"pattern '9\.\*' fits no parameter"),
    ({"ignore": "*"}, "no prunable weights"),
    ({"saliency": {"0.weight": torch.ones(24, IN)}}, r"no tensor for '3\.weight'"),
    (
        {"method": "viterbi", "saliency": lambda name, weight: -weight.abs()},
        "has negative ones",
    ),
    ({"stochastic": True, "seed": -1}, "seed=-1 is out of range"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_cannot_be_done_is_said_at_once_and_changes_nothing(
    options: dict[str, Any], words: str
) -> None:
    model = network()
    state = states(model)
    asked: dict[str, Any] = {"sparsity": 0.9, "schedule": LINEAR} | options
    with pytest.raises(TrellisError, match=words):
        Pruner(model, example(), **asked)
    assert same(states(model), state)


def test_masks_that_are_gone_are_missed() -> None:
    model = network()
    pruner = gradual(model, every=1)
    pruner.masks.bake(model)
    with pytest.raises(TrellisError, match=r"the mask of '0\.weight' is gone"):
        pruner.step()


def test_it_says_where_it_is() -> None:
    model = network()
    pruner = gradual(model, end=1000, every=100, regrow=0.25)
    assert repr(pruner) == (
        "Pruner: step 0 of 1,000, 752 of 752 connections kept (0 % pruned); geometric, steps 0 to "
        "1,000, every 100, regrowing 25 %; 597 after step 100, 75 in the end"
    )
    assert (pruner.sparsity, pruner.budget, pruner.steps, pruner.done) == (0.0, 752, 0, False)
    for _ in range(100):
        renewal = pruner.step()
    assert str(renewal) == "step 100: 597 connections kept (20.57 % pruned)"
    assert "step 100 of 1,000, 597 of 752 connections kept (20.6117 % pruned)" in str(pruner)
    assert pruner.sparsity == pruner.masks.sparsity
