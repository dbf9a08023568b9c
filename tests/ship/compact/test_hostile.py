"""Folders of compacted models that are damaged, or that ask for more than a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trellis


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    trellis.prune(model, torch.zeros(1, 4), sparsity=0.5)
    trellis.save(trellis.compact(model, torch.zeros(1, 4)), tmp_path / "small")
    return tmp_path / "small"


def changed(folder: Path, *path: Any, to: Any) -> Path:
    file = folder / "model.json"
    description = json.loads(file.read_text())
    place = description["architecture"]["arguments"]
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = to
    file.write_text(json.dumps(description))
    return folder


@pytest.mark.parametrize(
    "target",
    ["os.system.default", "aten.from_file.default", "aten.relu_.default", "operator.call",
     "aten.__class__.default", "prims.device_put.default", 3, None],
)  # fmt: skip
def test_only_operations_of_networks_can_be_named(folder: Path, target: Any) -> None:
    with pytest.raises(trellis.TrellisError, match="can be made"):
        trellis.load(changed(folder, "program", "ops", 0, 1, to=target))


@pytest.mark.parametrize(
    "path, value",
    [
        (("program", "ops", 0, 2), {"tuple": []}),
        (("program", "ops", 0, 2), [{"value": "nobody"}]),
        (("program", "ops", 0, 2), [{"tensor": "nobody"}]),
        (("program", "ops", 0, 0), ""),
        (("program", "ops"), None),
        (("program", "inputs"), [3]),
        (("program", "result"), {"value": "nobody"}),
        (("program", "result"), {"pickle": "x"}),
        (("buffers",), ["0.weight"]),
        (("inputs",), [{"dtype": "float32", "shape": [-1]}]),
        (("report", "before"), {"units": "many"}),
        (("report",), {}),
    ],
    ids=repr,
)
def test_what_could_not_have_been_written_is_refused(folder: Path, path: Any, value: Any) -> None:
    with pytest.raises(trellis.TrellisError):
        trellis.load(changed(folder, *path, to=value))


def test_an_unchanged_folder_is_read(folder: Path) -> None:
    assert isinstance(trellis.load(folder), trellis.Compacted)


@pytest.mark.parametrize(
    "path, value",
    [
        (("inputs",), ["x"]),
        (("inputs",), [{"dtype": "float32", "shape": "x"}]),
        (("inputs",), [{"dtype": "float32", "shape": [10**6, 10**6]}]),
        (("inputs",), 3),
        (("report", "after", "units"), 10**400),
        (("report", "stays"), [{"layer": "0", "units": 10**400, "why": ""}]),
        (("report", "notes"), "abc"),
        (("buffers",), [[]]),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_description_that_does_not_fit_its_schema(folder: Path, path: Any, value: Any) -> None:
    with pytest.raises(trellis.TrellisError, match=r"expected .* at \$|describes no input"):
        trellis.load(changed(folder, *path, to=value))
