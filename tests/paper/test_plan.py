"""The plan: a function of the settings alone, and every network once."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paper.waves import small, waves
from trellis.errors import TrellisError
from trellis.paper import Settings, plan_of
from trellis.paper.plan import Architecture, architecture_of
from trellis.paper.settings import METHODS, describe

ONE, THREE = describe(waves()), describe(waves(folds=3))


def test_the_same_settings_the_same_plan() -> None:
    assert plan_of(small(), THREE) == plan_of(small(), THREE)


def test_table_2_has_the_papers_rows_and_the_others() -> None:
    rows = plan_of(Settings("table2", "hands45", seeds=1, heads=8), ONE).rows
    assert rows[0].method is None
    assert len(rows) == 1 + 6 * len(METHODS)
    paper = [(r.rate, r.method.key) for r in rows[1:] if r.method is not None and r.method.paper]
    assert paper == [
        (rate, key)
        for rate in (50, 75, 90, 95, 99, 99.9)
        for key in ("mp", "stochastic-mp", "tc", "tc-stochastic")
    ]


def test_table_1_is_the_dense_network_and_table_3_the_surrogates() -> None:
    assert [row.key for row in plan_of(small("table1"), ONE).rows] == ["dense"]
    rows = plan_of(small("table3"), ONE).rows
    assert [row.key for row in rows] == [
        "dense", "tc-stochastic@90", "alpha-1@90", "alpha-10@90"
    ]  # fmt: skip


@given(stack=st.integers(1, 20), seeds=st.integers(1, 4), folds=st.sampled_from([ONE, THREE]))
def test_every_cell_once_in_stacks_of_one_fold_dense_first(
    stack: int, seeds: int, folds: object
) -> None:
    data = ONE if folds is ONE else THREE
    plan = plan_of(small(stack=stack, seeds=seeds), data)
    wanted = {
        f"{row.key}/seed-{seed}/fold-{fold}"
        for row in plan.rows
        for seed in range(seeds)
        for fold in range(len(data.folds))
    }
    keys = [cell.key for cell in plan.cells]
    assert sorted(keys) == sorted(wanted)
    assert [s.number for s in plan.stacks] == list(range(len(plan.stacks)))
    for part in plan.stacks:
        assert 1 <= len(part.cells) <= stack
        assert {cell.fold for cell in part.cells} == {part.fold}
        assert len({cell.row.method is None for cell in part.cells}) == 1
    kinds = [part.dense for part in plan.stacks]
    assert kinds == sorted(kinds, reverse=True)
    for cell in plan.cells:
        source, place = plan.dense(cell.seed, cell.fold)
        assert (source.cells[place].seed, source.cells[place].fold) == (cell.seed, cell.fold)
        assert source.dense


def test_stacks_are_as_large_as_the_device_allows() -> None:
    architecture = architecture_of(Settings("table2", "hands45"), ONE)
    on_cpu = architecture.fitting("cpu", 600)
    assert 1 <= on_cpu < architecture.fitting("cuda", 600)
    assert max(len(s.cells) for s in plan_of(Settings("table2", "x", seeds=9), ONE).stacks) > 1


def test_sparsity_is_exact() -> None:
    rows = plan_of(Settings("table2", "hands45", seeds=1, heads=8), ONE).rows
    assert {row.sparsity for row in rows[1:]} == {
        Decimal(text) for text in ("0.5", "0.75", "0.9", "0.95", "0.99", "0.999")
    }


def test_a_budget_of_nothing_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(TrellisError, match="keeps nothing"):
        plan_of(small(rates=(99.9,)), ONE)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("blocks", [1, 3])
def test_shapes_are_those_of_the_network(blocks: int, shared: bool) -> None:
    made = Architecture(5, 12, 4, heads=3, filters=8, blocks=blocks, shared=shared)
    parameters = {name: tuple(p.shape) for name, p in made.build(0).named_parameters()}
    assert list(made.shapes.items()) == list(parameters.items())
