"""Exactly the budget, every kept connection live, every output reached."""

import copy
import re
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.masks.models import weight
from tests.oracle.brute import consistent, feasible_budgets, layers_of, live, outputs_reached
from tests.oracle.network import as_set
from tests.oracle.networks import KINDS, random_network
from tests.zoo import ZOO
from trellis import Masks, Trellis, audit, prune, trace
from trellis.errors import TrellisError

from .unmasked import unmasked

METHODS: dict[str, dict[str, Any]] = {
    "viterbi": {},
    "viterbi_stochastic": {"method": "viterbi", "stochastic": True},
    "magnitude": {"consistent": True},
    "magnitude_by_layer": {"method": "magnitude", "scope": "layer", "consistent": True},
    "random": {"consistent": True},
    "synflow": {"consistent": True},
    "chains": {},
    "chains_stochastic": {"method": "chains", "stochastic": True, "surrogate": "global"},
    "phew": {},
}


WALKS = ("chains", "chains_stochastic", "phew")
BRANCHING = tuple(kind for kind in KINDS if kind not in ("mlp", "convolutional", "gcn"))


def options(name: str) -> dict[str, Any]:
    return {"method": name} | METHODS[name]


def works(error: TrellisError) -> int:
    found = re.search(r"keep=(\d+) works", str(error))
    assert found is not None, error
    return int(found[1])


@cache
def feasible(kind: str, seed: int, cover: bool) -> set[int]:
    return feasible_budgets(random_network(seed, kind, largest=11).graph, cover, cover)


def check_every_budget(kind: str, seed: int, method: str, cover: bool) -> None:
    """Exact wherever an exact network exists; else the most below; else an error that helps.

    Only where walks find no layers one after another may they refuse, and say what does not.
    """
    network = random_network(seed, kind, largest=11)
    net = trace(network.model, network.inputs)
    possible = feasible(kind, seed, cover)
    everything = set(network.graph.connections())
    wanted = outputs_reached(network.graph, everything) if cover else set()
    layers = layers_of(live(network.graph, everything))
    for budget in range(1, net.total + 1):
        try:
            covers: dict[str, Any] = {"cover_outputs": cover, "cover_layers": cover}
            masks = prune(unmasked(net), keep=budget, **covers, **options(method))
        except TrellisError as error:
            if kind in BRANCHING and method in WALKS and 'method="viterbi"' in str(error):
                continue
            assert budget < min(possible, default=net.total + 1), (budget, possible, str(error))
            assert works(error) in possible if possible else "disconnected" in str(error)
            continue
        kept = as_set(masks)
        assert masks.kept == len(kept) and masks.budget == budget
        assert len(kept) == max(found for found in possible if found <= budget)
        assert consistent(network.graph, kept)
        assert wanted <= outputs_reached(network.graph, kept)
        assert not cover or layers <= layers_of(kept)


@pytest.mark.parametrize("cover", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_exact_at_every_feasible_budget(method: str, kind: str, cover: bool) -> None:
    """On dense networks and the GCN this is promised. Elsewhere it is not, and which budgets are
    feasible is hard to say; on networks as small as these the search finds them all the same."""
    seeds = (0, 1, 2, 3) if kind in ("mlp", "gcn") else (3, 19)
    for seed in seeds[-1:] if method == "synflow" else seeds:
        check_every_budget(kind, seed, method, cover)


def sound(net: Trellis, masks: Masks, budget: int) -> None:
    report = audit(net)
    assert masks.kept == masks.budget == budget == report.kept
    assert report.live_fraction == 1.0
    assert report.outputs_reached == report.outputs


@pytest.mark.parametrize("name", ["mlp", "gcn", "gcn_shared", "gcn_stacked"])
@pytest.mark.parametrize("method", METHODS)
def test_exact_at_any_budget_of_larger_networks(method: str, name: str) -> None:
    model, inputs = ZOO[name]()
    net = trace(model, inputs)
    try:
        prune(net, keep=2, **options(method))
    except TrellisError as error:
        least = works(error)
    sound(net, prune(unmasked(net), keep=least, **options(method)), least)
    step = net.total // (5 if method == "synflow" else 23)
    for budget in range(least + 1, net.total + 1, step):
        sound(net, prune(unmasked(net), keep=budget, **options(method)), budget)
    sound(net, prune(unmasked(net), keep=net.total, **options(method)), net.total)


@pytest.mark.parametrize("method", ["viterbi", "magnitude"])
def test_every_budget_of_one_mlp(method: str) -> None:
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    net = trace(model, torch.zeros(1, 5))
    for budget in range(5, net.total + 1):
        sound(net, prune(unmasked(net), keep=budget, **options(method)), budget)


@pytest.mark.parametrize("sparsity", [0.9, 0.99])
@pytest.mark.parametrize("name", ["resnet18", "lenet", "unet", "gpt2", "mobilenet", "lstm_stacked"])
def test_real_architectures(name: str, sparsity: float) -> None:
    model, inputs = ZOO[name]()
    net = trace(model, inputs)
    masks = prune(net, keep=max(round(net.total * (1 - sparsity)), 12))  # 8 layers of an LSTM
    report = audit(net)
    assert report.live_fraction == 1.0 and report.outputs_reached == report.outputs
    assert report.kept == masks.kept == masks.budget


@pytest.mark.parametrize("method", METHODS)
def test_without_cover_all_that_is_kept_is_still_live(method: str) -> None:
    model, inputs = ZOO["mlp"]()
    net = trace(model, inputs)
    masks = prune(net, keep=6, cover_outputs=False, **options(method))
    report = audit(net)
    assert (masks.kept, report.live_fraction) == (6, 1.0)
    assert report.outputs_reached < report.outputs


@pytest.mark.parametrize("method", METHODS)
def test_where_no_path_leads_through_there_is_nothing_to_keep(method: str) -> None:
    """The second kernel reads nothing but padding."""
    model = nn.Sequential(
        nn.Conv2d(1, 2, 1, bias=False), nn.Conv2d(2, 1, 1, padding=1, stride=3, bias=False)
    )
    with pytest.raises(TrellisError, match="disconnected"):
        prune(model, torch.zeros(1, 1, 1, 1), keep=2, **options(method))


def test_padding_taps_are_never_kept() -> None:
    """One pixel, 3x3 kernel, padding 1: one tap of nine lives; more than that cannot be kept."""
    model = nn.Conv2d(1, 1, 3, padding=1)
    masks = prune(model, torch.zeros(1, 1, 1, 1), keep=5)
    assert (masks.kept, masks.budget) == (1, 5)
    assert as_set(masks) == {("weight", 4)}


@pytest.mark.parametrize("method", ["magnitude", "random", "synflow"])
def test_left_as_it_is_a_method_keeps_its_own_best(method: str) -> None:
    model, inputs = ZOO["mlp"]()
    masks = prune(model, inputs, keep=40, method=method)
    assert masks.kept == 40
    if method != "synflow":
        assert audit(model, inputs).live < 40


def test_viterbi_left_as_it_is_keeps_exactly_the_budget() -> None:
    model, inputs = ZOO["mlp"]()
    assert prune(model, inputs, keep=41, consistent=False).kept == 41


@pytest.mark.parametrize("method", METHODS)
def test_threads_do_not_matter(method: str) -> None:
    def run(threads: int) -> Masks:
        torch.set_num_threads(threads)
        try:
            model, inputs = ZOO["gcn_stacked"]()
            return prune(model, inputs, sparsity=0.8, **options(method))
        finally:
            torch.set_num_threads(1)

    assert run(1) == run(2)


@pytest.mark.parametrize("method", ["viterbi", "magnitude", "random", "synflow"])
@pytest.mark.parametrize("close", [True, False])
def test_pruning_again_only_removes(method: str, close: bool) -> None:
    model, inputs = ZOO["gcn_stacked"]()
    net = trace(model, inputs)
    before: dict[str, Tensor] | None = None
    for sparsity in (0.3, 0.6, 0.8):
        masks = prune(net, sparsity=sparsity, method=method, consistent=close)
        assert masks.kept == masks.budget
        assert before is None or all(bool((masks[n] <= before[n]).all()) for n in masks)
        before = {n: m.clone() for n, m in masks.items()}
        if close:
            assert audit(net).live_fraction == 1.0


@pytest.mark.parametrize("method", ["chains", "phew"])
def test_walks_do_not_start_from_masks(method: str) -> None:
    model, inputs = ZOO["mlp"]()
    prune(model, inputs, sparsity=0.5)
    with pytest.raises(TrellisError, match=f"'{method}' starts from a network without masks"):
        prune(model, inputs, sparsity=0.9, method=method)


def test_pruning_again_to_more_than_is_left_keeps_what_is_left() -> None:
    model, inputs = ZOO["mlp"]()
    first = prune(model, inputs, keep=60)
    again = prune(model, inputs, keep=200)
    assert again == first and (again.kept, again.budget) == (60, 200)


# -- the masked model ------------------------------------------------------------------------------


def test_a_plain_state_loads_into_a_fresh_model() -> None:
    for name in ("mlp", "resnet18", "gcn", "tied_embedding", "lstm", "gpt2"):
        model, inputs = ZOO[name]()
        fresh, _ = ZOO[name]()
        with torch.no_grad():
            for parameter in fresh.parameters():
                parameter.zero_()
        masks = prune(model, inputs, sparsity=0.7)
        fresh.load_state_dict(masks.plain_state_dict(model), strict=True)
        with torch.no_grad():
            one, two = (_first(m(*inputs)) for m in (model, fresh))
        assert torch.equal(one, two)


def _first(value: Any) -> Tensor:
    while not isinstance(value, Tensor):
        value = value[0] if isinstance(value, tuple) else next(iter(value.values()))
    return value


def test_optimizers_do_not_revive_what_is_gone() -> None:
    model, inputs = ZOO["mlp"]()
    masks = prune(model, inputs, sparsity=0.9)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    before = [weight(model, owner).detach().clone() for owner in ("0", "2", "4")]
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 12)).square().sum().backward()
        optimizer.step()
    after = [weight(model, owner).detach() for owner in ("0", "2", "4")]
    for old, new, mask in zip(before, after, masks.values(), strict=True):
        assert not torch.equal(old, new)
        assert bool((new[~mask] == 0).all())
    assert audit(model, inputs).to_dict()["kept"] == masks.kept


def test_tied_weights_are_one_parameter() -> None:
    model, inputs = ZOO["tied_embedding"]()
    masks = prune(model, inputs, sparsity=0.6)
    assert list(masks) == ["embedding.weight", "hidden.weight"]
    assert torch.equal(weight(model, "embedding"), weight(model, "head"))
    assert torch.equal(weight(model, "head") != 0, masks["embedding.weight"])
    assert audit(model, inputs).live_fraction == 1.0


@pytest.mark.parametrize("name", ["tanh_parametrized", "weight_norm"])
def test_parametrised_weights_are_ranked_by_what_the_model_computes_with(name: str) -> None:
    model, inputs = ZOO[name]()
    before = {f"{owner}.weight": weight(model, owner).detach().clone() for owner in ("0", "2")}
    masks = prune(model, inputs, keep=20, method="magnitude")
    flat = torch.cat([before[n].abs().reshape(-1) for n in masks])
    kept = torch.cat([masks[n].reshape(-1) for n in masks])
    assert float(flat[kept].min()) > float(flat[~kept].max())
    assert all(torch.equal(weight(model, n[0]) != 0, masks[n]) for n in masks)


@pytest.mark.parametrize("method", ["viterbi", "magnitude"])
def test_an_untrained_head_leaves_the_choice_to_the_trained_layers(method: str) -> None:
    """A head of zeros chooses as one of equal weights does."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 30), nn.Linear(30, 4))
    equal = copy.deepcopy(model)
    nn.init.zeros_(weight(model, "3"))
    nn.init.ones_(weight(equal, "3"))
    found = [
        prune(m, torch.zeros(1, 20), sparsity=0.8, method=method, consistent=True)
        for m in (model, equal)
    ]
    assert found[0].kept == found[0].budget == audit(model, torch.zeros(1, 20)).live
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors is a no-op:UserWarning")
@pytest.mark.parametrize("scope", ["global", "layer", "erk", "lamp", "balanced"])
def test_a_layer_without_outputs_keeps_nothing(scope: str) -> None:
    class Widened(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.more, self.last = nn.Linear(8, 8), nn.Linear(8, 0), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.first(x))
            return self.last(torch.cat([x, self.more(x)], 1))

    model = Widened()
    masks = prune(model, torch.zeros(1, 8), keep=20, scope=scope)
    assert masks.kept == 20 == audit(model, torch.zeros(1, 8)).live
    assert masks["more.weight"].shape == (0, 8)
