"""What each option of `prune` means, on numbers worked out by hand or by sampling."""

import math
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune as torch_prune

from tests.masks.models import weight
from tests.oracle.network import as_set
from tests.zoo import ZOO
from trellis import Masks, audit, prune, trace
from trellis.errors import TrellisError
from trellis.methods.budget import erk, lamp

from .unmasked import unmasked

X = torch.zeros(1, 4)


def dense(sizes: tuple[int, ...] = (4, 6, 3)) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)))


def counts(masks: Any) -> dict[str, int]:
    return {n: int(m.sum()) for n, m in masks.items()}


# -- scope -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparsity", [0.5, 0.9, 0.99])
def test_global_magnitude_is_torchs_global_pruning(sparsity: float) -> None:
    ours, inputs = ZOO["lenet"]()
    theirs, _ = ZOO["lenet"]()
    masks = prune(ours, inputs, sparsity=sparsity, method="magnitude")
    held = [(m, "weight") for m in theirs.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    torch_prune.global_unstructured(
        held, torch_prune.L1Unstructured, amount=masks.total - masks.kept
    )
    expected = {f"{n}.weight": m.weight_mask for n, m in theirs.named_modules()
                if hasattr(m, "weight_mask")}  # fmt: skip
    assert list(masks) == list(expected)
    assert all(torch.equal(masks[n], expected[n].bool()) for n in masks)


def test_layer_scope_floors_and_hands_the_rest_to_the_largest_fractions() -> None:
    """19 of 24 + 18: 10.86 and 8.14, floored 18 in all; the one left goes to .86."""
    masks = prune(dense(), X, keep=19, method="magnitude", scope="layer")
    assert counts(masks) == {"0.weight": 11, "1.weight": 8}
    for name, mask in masks.items():
        magnitude = dense().get_parameter(name).detach().abs()
        assert float(magnitude[mask].min()) > float(magnitude[~mask].max())


@pytest.mark.parametrize("sparsity", [0.1, 0.5, 0.75, 0.9, 0.95])
def test_layer_scope_is_the_papers_floor_per_tensor_up_to_the_remainder(sparsity: float) -> None:
    model, inputs = ZOO["lenet"]()
    masks = prune(model, inputs, sparsity=sparsity, method="magnitude", scope="layer")
    assert masks.kept == masks.budget
    for mask in masks.values():
        exact = mask.numel() * masks.budget / masks.total
        assert int(mask.sum()) in (math.floor(exact), math.floor(exact) + 1)


def test_erk_by_hand() -> None:
    """(6, 4) and (3, 6): Σ/∏ is 10/24 and 9/18; 19 kept in proportion 10 : 9."""
    masks = prune(dense(), X, keep=19, method="magnitude", scope="erk")
    assert counts(masks) == {"0.weight": 10, "1.weight": 9}
    assert erk({"a": (2, 2), "b": (8, 8)}, {"a": 4, "b": 64}, 20) == {"a": 1.0, "b": 0.25}


def test_lamp_by_hand() -> None:
    """s² over the sum of squares of all that are as large: 1/14, 4/13, 9/9."""
    found = lamp(torch.tensor([[2.0, 3.0, 1.0]]))
    torch.testing.assert_close(found, torch.tensor([[4 / 13, 1.0, 1 / 14]]))
    model = dense((1, 3, 1))
    with torch.no_grad():
        model.get_parameter("0.weight").copy_(torch.tensor([[2.0], [3.0], [1.0]]))
        model.get_parameter("1.weight").copy_(torch.tensor([[0.02, 0.04, 0.03]]))
    masks = prune(model, torch.zeros(1, 1), keep=4, method="magnitude", scope="lamp")
    # scores 4/13, 1, 1/14 and 4/29, 1, 9/25: the small tensor keeps its largest all the same
    assert as_set(masks) == {("0.weight", 0), ("0.weight", 1), ("1.weight", 1), ("1.weight", 2)}


def test_counts_per_tensor() -> None:
    scope = {"0.weight": 7, "1.weight": 2}
    for method in ("magnitude", "random"):
        masks = prune(dense(), X, method=method, scope=scope)
        assert counts(masks) == scope and masks.budget == 9
    with_rest = prune(dense(), X, method="magnitude", scope={"1.weight": 5})
    assert counts(with_rest) == {"0.weight": 0, "1.weight": 5}


@pytest.mark.parametrize(
    "scope", ["layer", "erk", "lamp", "balanced", {"0.weight": 9, "1.weight": 4}]
)
def test_made_consistent_a_scope_still_ranks(scope: Any) -> None:
    masks = prune(dense(), X, keep=13, method="magnitude", scope=scope, consistent=True)
    assert masks.kept == 13
    model = dense()
    masks.apply(model)
    assert audit(model, X).live_fraction == 1.0


@pytest.mark.parametrize("keep", [5, 20, 60])
def test_balanced_densities_lie_between_one_ranking_and_erk(keep: int) -> None:
    def densities(scope: str) -> dict[str, float]:
        torch.manual_seed(keep)
        model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))
        with torch.no_grad():
            model.get_parameter("2.weight").mul_(3)
        found = prune(model, torch.zeros(1, 12), keep=keep, method="magnitude", scope=scope)
        assert found.kept == keep
        return {name: max(int(m.sum()), 0.5) / m.numel() for name, m in found.items()}

    one, erk, between = densities("global"), densities("erk"), densities("balanced")
    wanted = {name: one[name] ** 0.75 * erk[name] ** 0.25 for name in one}
    ratio = (between["0.weight"] / between["2.weight"]) / (wanted["0.weight"] / wanted["2.weight"])
    rounding = 1 + 1 / min(between[n] * {"0.weight": 96, "2.weight": 32}[n] for n in between)
    capped = between["2.weight"] == 1
    assert capped or 1 / rounding**2 <= ratio <= rounding**2


# -- chance ----------------------------------------------------------------------------------------

CHANCE: dict[str, dict[str, Any]] = {
    "random": {"method": "random"},
    "magnitude": {"method": "magnitude", "stochastic": True},
    "by_layer": {"method": "magnitude", "stochastic": True, "scope": "layer"},
    "viterbi": {"method": "viterbi", "stochastic": True},
    "synflow": {"method": "synflow", "stochastic": True},
    "chains": {"method": "chains", "stochastic": True},
    "phew": {"method": "phew"},
}


@pytest.mark.parametrize("name", CHANCE)
def test_the_seed_decides(name: str) -> None:
    def run(seed: int) -> Any:
        torch.manual_seed(seed * 77)  # the global generator does not matter
        model, inputs = ZOO["mlp"]()
        return prune(model, inputs, keep=60, seed=seed, **CHANCE[name])

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_without_chance_the_seed_does_not_matter() -> None:
    for method in ("viterbi", "magnitude", "synflow"):
        assert prune(dense(), X, keep=9, method=method, seed=1) == prune(
            dense(), X, keep=9, method=method, seed=2
        )


def without_replacement(weights: list[float]) -> dict[frozenset[int], float]:
    """Chance of each pair when two are drawn one after the other in proportion to weight."""
    total = sum(weights)
    found: dict[frozenset[int], float] = defaultdict(float)
    for i, a in enumerate(weights):
        for j, b in enumerate(weights):
            if i != j:
                found[frozenset((i, j))] += a / total * b / (total - a)
    return found


def test_stochastic_magnitude_samples_without_replacement() -> None:
    weights = [1.0, 2.0, 3.0, 6.0]
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([weights]))
    net = trace(model, X)
    draws = 3000
    seen: Counter[frozenset[int]] = Counter()
    for seed in range(draws):
        masks = prune(unmasked(net), keep=2, method="magnitude", stochastic=True, seed=seed)
        seen[frozenset(i for _, i in as_set(masks))] += 1
    for pair, chance in without_replacement(weights).items():
        spread = math.sqrt(chance * (1 - chance) / draws)
        assert abs(seen[pair] / draws - chance) < 4.5 * spread


# -- saliency --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["viterbi", "magnitude", "synflow", "chains", "phew"])
def test_a_mapping_and_a_function_and_magnitude_are_the_same(method: str) -> None:
    magnitude = {n: p.detach().abs() for n, p in dense().named_parameters()}
    plain = prune(dense(), X, keep=11, method=method)
    mapped = prune(dense(), X, keep=11, method=method, saliency=magnitude)
    called = prune(dense(), X, keep=11, method=method, saliency=lambda name, w: w.abs())
    assert plain == mapped == called


def test_saliency_decides_and_not_the_weights() -> None:
    saliency = {"0.weight": torch.zeros(6, 4), "1.weight": torch.zeros(3, 6)}
    saliency["0.weight"][2, 1] = 1
    saliency["1.weight"][:, 2] = 1
    masks = prune(dense(), X, keep=4, saliency=saliency)
    assert all(torch.equal(masks[n], saliency[n] > 0) for n in masks)


def test_negative_saliency_ranks_but_does_not_multiply() -> None:
    saliency = {n: -p.detach().abs() for n, p in dense().named_parameters()}
    masks = prune(dense(), X, keep=11, method="magnitude", saliency=saliency)
    kept = torch.cat([saliency[n][m] for n, m in masks.items()])
    gone = torch.cat([saliency[n][~m] for n, m in masks.items()])
    assert masks.kept == 11 and float(kept.min()) > float(gone.max())
    closed = prune(dense(), X, keep=11, method="magnitude", saliency=saliency, consistent=True)
    assert closed.kept == 11
    multiplying: list[dict[str, Any]] = [{"method": "viterbi"}, {"stochastic": True}]
    for options in multiplying:
        with pytest.raises(TrellisError, match="negative"):
            prune(dense(), X, keep=11, saliency=saliency, **options)


def test_weights_of_zero_may_be_kept_where_they_are_needed() -> None:
    model = dense()
    with torch.no_grad():
        model.get_parameter("0.weight").zero_()
    masks = prune(model, X, keep=8)
    assert masks.kept == 8 and int(masks["0.weight"].sum()) > 0


# -- ignore ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["viterbi", "magnitude", "synflow", "chains", "phew"])
@pytest.mark.parametrize("pattern", ["2.weight", ["2.*"], ("*2.weight",)])
def test_ignored_parameters_are_wires(method: str, pattern: Any) -> None:
    model, inputs = ZOO["mlp"]()
    whole = weight(model, "2").detach().clone()
    masks = prune(model, inputs, keep=40, method=method, consistent=True, ignore=pattern)
    assert list(masks) == ["0.weight", "4.weight"]
    assert masks.kept == 40 and masks.total == 12 * 16 + 16 * 5
    assert torch.equal(weight(model, "2"), whole)
    live = audit(model, inputs).live_masks
    assert all(torch.equal(live[n], masks[n]) for n in masks)


def test_sparsity_is_of_what_is_not_ignored() -> None:
    model, inputs = ZOO["mlp"]()
    masks = prune(model, inputs, sparsity=0.9, ignore="0.weight")
    assert masks.budget == (16 * 16 + 16 * 5) // 10


# -- what is returned ------------------------------------------------------------------------------


def test_the_masks_remember_how_they_were_made() -> None:
    masks = prune(dense(), X, sparsity=0.5, method="magnitude", scope="layer", seed=4)
    options = masks.provenance["options"]
    assert (options["method"], options["scope"], options["seed"]) == ("magnitude", "layer", 4)
    assert options["consistent"] is False and options["saliency"] == "magnitude"
    assert masks.provenance["inputs"] == [{"dtype": "float32", "shape": [1, 4]}]
    assert prune(dense(), X, sparsity=0.5).provenance["options"]["consistent"] is True


def test_ties_go_to_the_earlier_connection() -> None:
    saliency = {"0.weight": torch.ones(6, 4), "1.weight": torch.ones(3, 6)}
    masks = prune(dense(), X, keep=5, method="magnitude", saliency=saliency)
    assert as_set(masks) == {("0.weight", i) for i in range(5)}


def test_a_traced_model_is_pruned_like_the_model() -> None:
    model = dense()
    direct = prune(dense(), X, keep=10)
    through = prune(trace(model, X), keep=10)
    assert direct == through
    assert torch.equal(weight(model, "0") != 0, through["0.weight"])


def effective(model: nn.Module) -> Tensor:
    return model(torch.ones(1, 4)).detach()


def test_the_model_is_pruned_in_place() -> None:
    model = dense()
    before = effective(model)
    masks = prune(model, X, keep=10)
    assert not torch.equal(before, effective(model))
    fresh = dense()
    masks.apply(fresh)
    assert torch.equal(effective(fresh), effective(model))


def test_numbers_and_sets_of_numpy_and_python_are_the_same() -> None:
    def kept(**options: Any) -> Masks:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 4))
        return prune(model, torch.zeros(1, 8), **options)

    assert kept(sparsity=np.float32(0.9)) == kept(sparsity=0.9)
    chains = {"keep": 20, "method": "chains", "stochastic": True}
    assert kept(**chains, seed=np.int64(3)) == kept(**chains, seed=3)
    eq5 = {"keep": 20, "method": "chains", "surrogate": "global"}
    assert kept(**eq5, inverse_alpha=np.float32(3)) == kept(**eq5, inverse_alpha=3.0)
    counts = {"0.weight": np.int64(10), "2.weight": np.int32(5)}
    found = kept(method="magnitude", scope=counts)
    assert found.kept == 15 and found.provenance["options"]["scope"] == {
        "0.weight": 10,
        "2.weight": 5,
    }
    assert kept(keep=9, ignore=frozenset({"0.*"})) == kept(keep=9, ignore="0.*")
    with pytest.raises(TrellisError, match=r"10\.0 of '0\.weight', which is not a whole number"):
        kept(method="magnitude", scope={"0.weight": 10.0})
