"""What a run keeps of its networks and recordings is what was trained and tested."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.paper.waves import small, waves
from trellis.errors import TrellisError
from trellis.paper import plan_of, reproduce, stored
from trellis.paper.folder import Folder
from trellis.paper.plan import architecture_of
from trellis.paper.pruning import is_packed, unpacked
from trellis.paper.settings import NAME, Named, Recordings, describe, read_named
from trellis.training import forward_of, predictions, stack


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return reproduce(small(), waves(folds=2), tmp_path_factory.mktemp("run"))


def test_a_packed_network_says_what_its_cell_says(run: Folder) -> None:
    architecture = architecture_of(run.settings, run.data)
    cells = [cell for cell in plan_of(run.settings, run.data).cells if is_packed(cell)]
    cells = [cell for cell in cells if cell.row.method is not None]
    assert {cell.row.key for cell in cells} == {"mp@90", "tc@90", "lamp@90"}
    split = Recordings(waves(folds=2), run.settings.chunks).fold(0, torch.device("cpu"))
    for cell in cells:
        record = run.records[cell.key]
        found = unpacked(run.networks(record["stack"]), cell.row.key, architecture.shapes)
        assert found is not None
        weights, masks = found
        assert {name: int(mask.sum()) for name, mask in masks.items()} == record["layers"]
        model = architecture.build(0)
        model.load_state_dict(weights)
        said = predictions(forward_of(model), stack([model]), split.test_x)[0]
        assert said.tolist() == record["said"]
        assert all((weights[name][~mask] == 0).all() for name, mask in masks.items())


def test_what_is_said_counts_up_to_what_is_correct(run: Folder) -> None:
    named = read_named(run.path, run.data)
    assert named is not None
    for record in run.records.values():
        right = np.array(record["said"]) == np.array(named.labels[record["fold"]])
        assert int(right.sum()) == record["correct"]
        assert record["live_layers"].keys() == record["layers"].keys()
        assert sum(record["live_layers"].values()) == record["live"]


def test_names_are_read_as_written(run: Folder) -> None:
    assert read_named(run.path, run.data) == Named.of(waves(folds=2))


def test_a_run_without_them_is_read_all_the_same(tmp_path: Path) -> None:
    reproduce(small(), waves(), tmp_path)
    (tmp_path / NAME).unlink()
    lines = (tmp_path / "cells.jsonl").read_text().splitlines()
    new = ("said", "live_layers")
    old = [{k: v for k, v in json.loads(line).items() if k not in new} for line in lines]
    (tmp_path / "cells.jsonl").write_text("".join(json.dumps(line) + "\n" for line in old))
    data = describe(waves())
    assert read_named(tmp_path, data) is None
    assert len(stored(tmp_path).records) == len(old)
    reproduce(small(), waves(), tmp_path)  # nothing is left to train
    assert read_named(tmp_path, data) == Named.of(waves())


def test_what_is_damaged_is_told(run: Folder, tmp_path: Path) -> None:
    shapes = architecture_of(run.settings, run.data).shapes
    assert unpacked(tmp_path / "nothing", "mp@90", shapes) is None
    (tmp_path / "half").write_bytes(b"half")
    with pytest.raises(TrellisError, match="delete that file"):
        unpacked(tmp_path / "half", "mp@90", shapes)
    number = next(r["stack"] for r in run.records.values() if r["row"] == "tc@90")
    smaller = {name: (1,) * len(shape) for name, shape in shapes.items()}
    with pytest.raises(TrellisError, match="not in the network"):
        unpacked(run.networks(number), "tc@90", smaller)
    (tmp_path / NAME).write_text('{"classes": 3}')
    with pytest.raises(TrellisError, match=r"recordings\.json': expected"):
        read_named(tmp_path, run.data)
