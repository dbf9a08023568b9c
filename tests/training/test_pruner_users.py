"""`Pruner` in loops and models that people write: interrupted, wrapped, evaluated, overruled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import trellis
from trellis import Pruner, Schedule
from trellis.errors import TrellisError
from trellis.training.pruner import Carried
from trellis.training.regrowth import ProbedMask

from .gradual import adam, batch, example, gradual, guaranteed, learn, network, same, states


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError])
def test_an_interrupted_renewal_is_still_to_come(error: type[BaseException]) -> None:
    model, at = network(), [-1]

    def worth(_: str, weight: Tensor) -> Tensor:
        if at[0] == 7:
            raise error
        return weight.detach().abs()

    pruner = gradual(model, saliency=worth)
    optimizer = adam(model)
    learn(model, optimizer, pruner, range(7))
    before, at[0] = states(model), 7
    with pytest.raises(error):
        pruner.step()
    assert pruner.steps == 7 and not pruner.done and same(before, states(model))
    at[0] = -1
    assert pruner.step() is not None
    assert pruner.done and pruner.kept == pruner.plan.target
    guaranteed(pruner)


@pytest.mark.parametrize("regrow", [0.0, 0.5])
@pytest.mark.parametrize("after", [1, 2])
def test_interrupted_while_it_writes_masks_it_leaves_no_half(
    monkeypatch: pytest.MonkeyPatch, regrow: float, after: int
) -> None:
    model = network()
    pruner = gradual(model, regrow=regrow)
    optimizer = adam(model)
    learn(model, optimizer, pruner, range(3))
    write, calls = Carried.renew, [0]

    def interrupted(mine: Carried, kept: Tensor) -> None:
        calls[0] += 1
        if calls[0] == after + 1:
            raise KeyboardInterrupt
        write(mine, kept)

    monkeypatch.setattr(Carried, "renew", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learn(model, optimizer, pruner, range(3, 4))
    assert trellis.audit(pruner.net).live_fraction == 1.0
    assert pruner.steps == 3 and pruner.kept == pruner.plan.budget(4)
    assert pruner.step() is not None
    guaranteed(pruner)
    learn(model, optimizer, pruner, range(4, 8))
    guaranteed(pruner)
    assert pruner.done


class Forwarding(nn.Module):
    """A wrapper that hands on what it does not have itself, with a parameter of its own."""

    def __init__(self, own: str) -> None:
        super().__init__()
        self.own = own
        self.register_parameter(own, nn.Parameter(torch.randn(12, 12)))
        self.inner = nn.Linear(12, 12)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = (self.inner(x).relu() @ getattr(self, self.own)).relu()
        found: Tensor = self.head(x)
        return found

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "inner":
                raise
            return getattr(self.inner, name)


@pytest.mark.parametrize("normed", [False, True])
def test_a_wrapper_that_hands_attributes_on(normed: bool) -> None:
    torch.manual_seed(0)
    model = Forwarding("between")
    if normed:
        nn.utils.parametrizations.weight_norm(model.inner)
    pruner = gradual(model)
    learn(model, adam(model), pruner)
    guaranteed(pruner)
    assert set(pruner.masks) == {"between", "inner.weight", "head.weight"}
    x, _ = batch(0)
    said = model(x)
    pruner.masks.bake(model)
    assert torch.equal(model(x), said) and type(model) is Forwarding
    assert trellis.audit(model, example()).live_fraction == 1.0


def test_a_parameter_before_another_of_its_name_is_refused() -> None:
    model = Forwarding("weight")
    before = states(model)
    with pytest.raises(TrellisError, match="which also has a 'weight'"):
        gradual(model)
    assert same(before, states(model)) and list(before) == list(states(model))
    learn(model, adam(model), pruner := gradual(model, ignore="weight"))
    assert pruner.kept == pruner.plan.target


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True:UserWarning")
def test_gradients_that_have_a_graph_bring_connections_back() -> None:
    model = network()
    pruner = gradual(model, regrow=0.3)
    regrown = 0
    for step in range(8):
        x, _ = batch(step)
        model.zero_grad()
        model(x).square().mean().backward(create_graph=True)
        if renewal := pruner.step():
            regrown += renewal.regrown
            guaranteed(pruner)
    assert regrown > 0


@pytest.mark.parametrize("method", ["viterbi", "chains", "phew", "random", "synflow"])
def test_where_tensors_are_made_by_default_makes_no_difference(method: str) -> None:
    found = []
    for device in (None, "meta"):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Flatten(),
            nn.Linear(144, 3),
        )  # fmt: skip
        x = torch.zeros(2, 3, 8, 8)
        torch.set_default_device(device)
        try:
            schedule = Schedule("linear", end=2)
            pruner = Pruner(
                model, x, sparsity=0.9, schedule=schedule, method=method, consistent=True
            )
            assert pruner.step() and pruner.step()
            assert trellis.audit(model, x).live_fraction == 1.0
            assert trellis.prune(model, x, keep=20).kept == 20
        finally:
            torch.set_default_device(None)
        found.append(pruner.masks)
    assert found[0] == found[1]


class Added(nn.Module):
    """What low-rank adapters do to a weight."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight + 1


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


def test_what_is_registered_over_a_mask_may_not_bring_connections_back() -> None:
    model = network()
    pruner = gradual(model)
    learn(model, adam(model), pruner, range(2))
    layer = model[0]
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert trellis.audit(model, example()).kept == pruner.kept  # zeros stay zeros
    learn(model, adam(model), pruner, range(2, 4))
    guaranteed(pruner)
    masks = pruner.masks
    parametrize.register_parametrization(layer, "weight", Added())
    rows = {row.name: row for row in trellis.audit(model, example()).layers}
    assert rows["0.weight"].kept == rows["0.weight"].total
    with pytest.raises(TrellisError, match=r"Added was registered on '0\.weight' after its mask"):
        learn(model, adam(model), pruner, range(4, 6))
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    masks.apply(model)
    assert trellis.audit(model, example()).kept == masks.kept


def test_parameters_that_are_shared_out_are_refused() -> None:
    model: Any = network()
    pruner = gradual(model)
    weight = model[3].parametrizations.weight.original
    weight.full_tensor = lambda: weight  # as a DTensor has it
    with pytest.raises(TrellisError, match="trace the model first"):
        learn(model, adam(model), pruner, range(2))
    assert pruner.steps == 1
    bare: Any = network()
    bare[3].weight.full_tensor = lambda: None
    with pytest.raises(TrellisError, match=r"'3\.weight' is sharded over processes"):
        gradual(bare)


def test_a_probe_is_not_in_what_is_evaluated() -> None:
    mask = ProbedMask(torch.tensor([True, False]))
    weight = torch.tensor([2.0, 3.0])
    mask.open(weight)
    assert mask(weight).requires_grad
    with torch.no_grad():  # whoever records what is computed would find it there as a constant
        assert mask.probe is not None
        mask.probe.fill_(torch.nan)
        assert mask(weight).tolist() == [2.0, 0.0]


@pytest.mark.parametrize("regrow", [0.0, 0.3])
def test_made_and_stepped_where_a_model_is_evaluated_it_can_be_trained(regrow: float) -> None:
    found = []
    for evaluated in (False, True):
        model = network()
        with torch.inference_mode(evaluated):
            pruner = gradual(model, regrow=regrow)
        optimizer = adam(model)
        for step in range(8):
            x, y = batch(step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            with torch.inference_mode(evaluated):
                pruner.step()
        guaranteed(pruner)
        found.append(states(model))
    assert same(*found)


def test_weights_that_change_as_a_model_runs_are_one_error() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(9, 4, max_norm=1.0)
            self.out = nn.Linear(4, 9, bias=False)
            self.out.weight = self.words.weight

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.out(self.words(x))
            return found

    with pytest.raises(TrellisError, match="an embedding with max_norm"):
        trellis.audit(Tied(), torch.zeros(1, 3, dtype=torch.int64))
