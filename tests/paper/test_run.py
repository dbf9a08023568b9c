"""A table from start to end, on recordings of three classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save

from tests.paper.waves import small, waves
from trellis.errors import TrellisError
from trellis.paper import Progress, Settings, plan_of, report_of, reproduce, stored
from trellis.paper.plan import architecture_of
from trellis.paper.settings import Recordings, describe
from trellis.skeleton import Fold, Skeletons
from trellis.skeleton.model.gcn_stacks import Narrow, narrowed
from trellis.training import Training, accuracies, forward_of, stack

TABLES = ("table.txt", "table.md", "table.csv", "table.tex")


def texts(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


def figures(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "cells.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def seen(settings: Settings, data: Skeletons, out: Path) -> list[Progress]:
    reports: list[Progress] = []
    reproduce(settings, data, out, watch=reports.append)
    return reports


def test_a_dense_cell_is_what_training_alone_gives(tmp_path: Path) -> None:
    settings, data = small("table1"), waves()
    reproduce(settings, data, tmp_path)
    architecture = architecture_of(settings, describe(data))
    split = Recordings(data, settings.chunks).fold(0, torch.device("cpu"))
    for record in figures(tmp_path):
        seed = record["seed"]
        assert isinstance(seed, int)
        model = architecture.build(seed)
        weights, forward = stack([model]), forward_of(model)
        training = Training(
            forward, weights, split.train_x, split.train_y, settings.recipe, seeds=[seed]
        )
        while not training.done:
            training.epoch()
        right = accuracies(forward, weights, split.test_x, split.test_y)
        assert record["correct"] == round(float(right) * len(split.test_y))
        kept = load_file(tmp_path / "dense" / "stack-0.safetensors")
        for name, weight in weights.items():
            torch.testing.assert_close(kept[name][seed], weight[0], rtol=1e-4, atol=1e-5)


def test_what_is_empty_is_left_out_of_tuning_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, data = small(rates=(90.0,)), waves()
    shares = []

    def watched(*given: Any) -> Narrow | None:
        found = narrowed(*given)
        shares.append(1.0 if found is None else found.share)
        return found

    monkeypatch.setattr("trellis.paper.run.narrowed", watched)
    reproduce(settings, data, tmp_path / "narrow")
    assert min(shares) < 0.9  # it was
    monkeypatch.setattr("trellis.paper.run.narrowed", lambda *given: None)
    reproduce(settings, data, tmp_path / "whole")
    for one, other in zip(figures(tmp_path / "narrow"), figures(tmp_path / "whole"), strict=True):
        loss, whole = one.pop("loss"), other.pop("loss")
        assert one == other and loss == pytest.approx(whole, rel=1e-4)


def test_resumed_at_any_line_it_ends_the_same_and_trains_only_what_is_missing(
    tmp_path: Path,
) -> None:
    settings, data = small(), waves()
    whole = tmp_path / "whole"
    work = seen(settings, data, whole)[-1].work
    lines = (whole / "cells.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 14
    for kept in (1, 5, 13, 14):
        (whole / "cells.jsonl").write_bytes(b"".join(lines[:kept]) + b'{"cell": "mp@50/se')
        before = texts(whole)
        reports = seen(settings, data, whole)
        assert texts(whole) == before
        assert len((whole / "cells.jsonl").read_bytes().splitlines()) == 14
        if kept == 14:
            assert reports == []
        else:
            assert reports[-1].done == reports[-1].work == work
            left = [s for s in plan_of(settings, describe(data)).stacks
                    if not {c.key for c in s.cells} <= {json.loads(line)["cell"] for line in lines[:kept]}]  # noqa: E501  # fmt: skip
            assert reports[0].stack == left[0].number + 1


def test_dense_weights_that_were_lost_are_made_again(tmp_path: Path) -> None:
    settings, data = small(), waves()
    reproduce(settings, data, tmp_path)
    before, path = figures(tmp_path), tmp_path / "dense" / "stack-0.safetensors"
    weights = path.read_bytes()
    path.unlink()
    reproduce(settings, data, tmp_path)
    assert path.read_bytes() == weights and figures(tmp_path) == before


def test_damaged_dense_weights_are_told_and_once_deleted_made_again(tmp_path: Path) -> None:
    settings, data = small(), waves()
    reproduce(settings, data, tmp_path)
    path, cells = tmp_path / "dense" / "stack-0.safetensors", tmp_path / "cells.jsonl"
    weights, lines, tables = path.read_bytes(), cells.read_bytes(), texts(tmp_path)
    begun = b"".join(lines.splitlines(keepends=True)[:2])  # the dense cells
    other = save({name: torch.ones(2, 3) for name in load(weights)})
    for damaged in (b"", b"half", weights[:100], weights[:-1], save({"a": torch.ones(2)}), other):
        cells.write_bytes(begun)
        path.write_bytes(damaged)
        with pytest.raises(TrellisError, match=r"stack-0\.safetensors' cannot be used .*delete"):
            reproduce(settings, data, tmp_path)
        assert cells.read_bytes() == begun  # and no cell says that its method was refused
    path.unlink()
    reproduce(settings, data, tmp_path)
    assert path.read_bytes() == weights and texts(tmp_path) == tables


def test_how_networks_are_stacked_changes_nothing_but_rounding(tmp_path: Path) -> None:
    for stack_size in (1, 50):
        reproduce(small(stack=stack_size), waves(), tmp_path / str(stack_size))
    one, together = (
        {str(r["cell"]): (r["kept"], r["live"], r["layers"]) for r in figures(tmp_path / str(size))}
        for size in (1, 50)
    )
    assert one == together


def test_every_fold_is_trained(tmp_path: Path) -> None:
    folder = reproduce(small(seeds=1, rates=(50.0,)), waves(folds=3), tmp_path)
    assert {record["fold"] for record in folder.records.values()} == {0, 1, 2}
    assert {record["test"] for record in folder.records.values()} == {9}
    text = (tmp_path / "table.txt").read_text()
    assert "3 folds: 27, 27, 27 to train on" in text
    assert "mean over its 3 folds, weighted by their test recordings" in " ".join(text.split())


@pytest.mark.parametrize("table", ["table1", "table3"])
def test_the_other_tables(tmp_path: Path, table: str) -> None:
    folder = reproduce(small(table), waves(synthetic=True), tmp_path)
    for name in TABLES:
        text = (tmp_path / name).read_text().lower()
        assert "synthetic" in text
    lines = report_of(folder).lines
    if table == "table1":
        assert len(lines) == 22
    else:
        assert [line.values[0] for line in lines] == ["local", "1", "10"]


def test_an_unfinished_run_can_be_looked_at(tmp_path: Path) -> None:
    reproduce(small(), waves(), tmp_path)
    lines = (tmp_path / "cells.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cells.jsonl").write_bytes(b"".join(lines[:3]))
    report = report_of(stored(tmp_path))
    assert "UNFINISHED: 11 of 14" in " ".join(report.warnings)
    assert report.lines[-1].values[3] is None


def test_a_method_that_cannot_be_had_does_not_end_the_run(tmp_path: Path) -> None:
    # Two connections cannot make a path of three.
    settings = small(rates=(99.0,), rows=("mp", "tc", "viterbi"), seeds=1)
    folder = reproduce(settings, waves(), tmp_path)
    refused = [r["row"] for r in folder.records.values() if "refused" in r]
    assert "viterbi@99" in refused and "mp@99" not in refused
    assert "not possible" in (tmp_path / "table.md").read_text()


def test_data_that_no_table_can_be_made_from(tmp_path: Path) -> None:
    data = waves()
    none = Fold("all", data.folds[0].train, data.folds[0].test[:0])
    with pytest.raises(TrellisError, match="0 to test on"):
        reproduce(small(), Skeletons(**vars(data) | {"folds": (none,)}), tmp_path)
    with pytest.raises(TrellisError, match="no split"):
        reproduce(small(), Skeletons(**vars(data) | {"folds": ()}), tmp_path)
    with pytest.raises(TrellisError, match="expected a 'cpu' device"):
        reproduce(small(), data, tmp_path, device="cuda")
