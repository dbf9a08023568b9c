"""Rows are pruned as their names say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import trellis
from trellis.files import write_tensors
from trellis.paper.plan import Architecture, Row
from trellis.paper.pruning import CellPruner, Job, Selection
from trellis.paper.settings import METHODS, with_inverse_alpha
from trellis.training import stack

SMALL = Architecture(nodes=5, channels=12, classes=4, heads=3, filters=8)


@pytest.fixture(scope="module")
def bench() -> CellPruner:
    return CellPruner(SMALL)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dense") / "stack.safetensors"
    write_tensors(path, stack([SMALL.build(seed) for seed in range(3)]))
    return path


def selected(bench: CellPruner, dense: Path, key: str, rate: float, seed: int = 1) -> Selection:
    method = METHODS[key] if key in METHODS else with_inverse_alpha(float(key))
    return bench(Job(dense, seed, Row(f"{key}@{rate:g}", rate, method), seed))


def test_a_dense_network_is_only_audited(bench: CellPruner, dense: Path) -> None:
    found = bench(Job(dense, 0, Row("dense", 0.0, None), 0))
    assert found.bits == {}
    assert found.figures["kept"] == found.figures["live"] == SMALL.connections


@pytest.mark.parametrize("rate", [50, 90, 95])
@pytest.mark.parametrize("key", METHODS)
def test_the_budget_is_kept_and_tc_is_live(
    bench: CellPruner, dense: Path, key: str, rate: float
) -> None:
    found = selected(bench, dense, key, rate)
    assert found.refused is None
    assert found.figures["kept"] == math.floor(SMALL.connections * (100 - rate) / 100)
    if METHODS[key].consistent:
        assert found.figures["live"] == found.figures["kept"]
    masks = found.masks(SMALL.shapes)
    counts = {name: int(mask.sum()) for name, mask in masks.items()}
    assert counts == found.figures["layers"]


@pytest.mark.parametrize("key", ["mp", "stochastic-mp"])
@pytest.mark.parametrize("rate", [50, 75, 90, 95])
def test_mp_removes_the_same_rate_from_every_layer(
    bench: CellPruner, dense: Path, key: str, rate: float
) -> None:
    layers = selected(bench, dense, key, rate).figures["layers"]
    for name, shape in SMALL.shapes.items():
        assert abs(layers[name] - math.prod(shape) * (100 - rate) / 100) <= 1


def test_mp_keeps_the_largest_of_each_layer(bench: CellPruner, dense: Path) -> None:
    masks = selected(bench, dense, "mp", 90).masks(SMALL.shapes)
    for name, weight in SMALL.build(1).state_dict().items():
        kept, gone = weight.abs()[masks[name]], weight.abs()[~masks[name]]
        assert float(kept.min()) >= float(gone.max())


def test_mp_under_tc_budgets_has_tcs_counts_and_other_connections(
    bench: CellPruner, dense: Path
) -> None:
    tc, mp = (selected(bench, dense, key, 90) for key in ("tc", "mp-tc-budgets"))
    assert mp.figures["layers"] == tc.figures["layers"]
    assert any((mp.bits[name] != tc.bits[name]).any() for name in tc.bits)


def test_a_row_is_what_prune_gives_for_its_options(bench: CellPruner, dense: Path) -> None:
    example = torch.zeros(1, SMALL.nodes, SMALL.channels)
    for key in ("tc", "tc-stochastic", "synflow", "viterbi", "phew"):
        model = SMALL.build(2)
        wanted = trellis.prune(model, example, sparsity=0.9, seed=2, **METHODS[key].options)
        assert wanted == selected(bench, dense, key, 90, seed=2).masks(SMALL.shapes)


def test_seeds_matter_where_rows_walk_or_sample(bench: CellPruner, dense: Path) -> None:
    def bits(key: str, seed: int) -> bytes:
        row = Row(f"{key}@90", 90.0, METHODS[key])
        return b"".join(b.tobytes() for b in bench(Job(dense, 0, row, seed)).bits.values())

    for key, method in METHODS.items():
        if key != "mp-tc-budgets":  # only as far as the budgets differ
            walks = method.options["method"] in ("chains", "phew")
            assert (bits(key, 0) != bits(key, 5)) == (walks or method.stochastic)


def test_order_of_jobs_does_not_matter(bench: CellPruner, dense: Path) -> None:
    first = selected(bench, dense, "tc", 90).masks(SMALL.shapes)
    selected(bench, dense, "mp", 50)
    again = selected(bench, dense, "tc", 90).masks(SMALL.shapes)
    fresh = selected(CellPruner(SMALL), dense, "tc", 90).masks(SMALL.shapes)
    for name in first:
        assert torch.equal(first[name], again[name]) and torch.equal(first[name], fresh[name])


def test_a_budget_that_a_method_refuses_is_told_not_raised(bench: CellPruner, dense: Path) -> None:
    found = selected(bench, dense, "viterbi", 99.8)  # too few to reach every class
    assert found.refused is not None and found.bits == {}


def test_inverse_alpha_is_passed_on() -> None:
    options = with_inverse_alpha(50).options
    assert options["inverse_alpha"] == 50 and options["surrogate"] == "global"
    assert options["stochastic"] and not options["cover_outputs"]
