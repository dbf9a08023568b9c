"""Folders of compacted models that are damaged, or that ask for more than a network."""

from __future__ import annotations

import json
import subprocess
import sys
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
    with pytest.raises(trellis.TrellisError, match="architecture is invalid"):
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


def test_no_damaged_field_ends_the_process(tmp_path: Path) -> None:
    """Every field of five models is changed: refused, or it runs. The old code ended here with a
    segmentation fault (an LSTM whose batch_first was flipped)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.deploy.compact.mutants", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def program(folder: Path, ops: list[Any], shape: list[int], kind: str = "float32") -> Path:
    """The folder with these operations instead, over one input of this shape."""
    changed(folder, "program", to={"inputs": ["x"], "ops": ops, "result": {"value": ops[-1][0]}})
    changed(folder, "inputs", to=[{"dtype": kind, "shape": shape}])
    description = json.loads((folder / "model.json").read_text())
    description["architecture"]["arguments"].pop("shapes", None)  # as older releases wrote it
    (folder / "model.json").write_text(json.dumps(description))
    return folder


X: dict[str, str] = {"value": "x"}
WEIGHT: dict[str, str] = {"tensor": "0.weight"}


@pytest.mark.parametrize(
    ("target", "args", "shape"),
    [
        ("aten.as_strided.default", [X, [5], [1]], [1, 4]),
        ("aten.as_strided.default", [X, [1 << 40], [1 << 40]], [1, 4]),
        ("aten.native_batch_norm.default", [X, None, None, None, None, False, 0.1, 1e-5], [1, 4]),
        ("aten.native_batch_norm.default", [X, *[WEIGHT] * 4, False, 0.1, 1e-5], [1, 4]),
        ("aten.upsample_nearest1d.default", [X, [8], 1e-320], [1, 1, 4]),
        ("aten.lstm.data", [X, X, [X, X], [X], True, 1, 0.0, False, False], [1, 4]),
        ("aten.conv1d.default", [X, X, None, [0]], [1, 1, 4]),
        ("aten.repeat.default", [X, [1 << 40, 1]], [1, 4]),
        ("aten.mul.left_t", [[1], 1 << 40], [1, 4]),
        ("operator.mul", [[1], 1 << 40], [1, 4]),
        ("aten.to.dtype", [X, 1000], [1, 4]),
        ("aten.select.int", [X, True, 0], [1, 4]),
        ("aten.softmax.int", [X, 999], [1, 4]),
        ("aten._softmax.default", [X, -3, False], [1, 4]),
        ("aten.sort.default", [X, 2], [1, 4]),
        ("aten.relu.default", [X, X], [1, 4]),
        ("aten.relu.default", [], [1, 4]),
    ],
    ids=repr,
)
def test_what_torch_does_not_check_is_checked(
    folder: Path, target: str, args: list[Any], shape: list[int]
) -> None:
    with pytest.raises(trellis.TrellisError, match="architecture is invalid"):
        trellis.load(program(folder, [["y", target, args, {"dict": {}}]], shape))


def test_wrong_outputs_are_refused(folder: Path) -> None:
    first = json.loads((folder / "model.json").read_text())
    name = first["architecture"]["arguments"]["program"]["ops"][0][0]
    with pytest.raises(trellis.TrellisError, match="its operations make"):
        trellis.load(changed(folder, "program", "result", to={"value": name}))


def test_calls_with_other_shapes_are_refused(tmp_path: Path) -> None:
    """The raw operation reads outside its tensors there."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTM(5, 7, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.cell(x)[0][:, -1]
            return out

    small = trellis.compact(Last(), torch.zeros(1, 4, 5))
    assert small(torch.zeros(3, 9, 5)).shape == (3, 7)
    with pytest.raises(trellis.TrellisError, match="lstm: got a weight"):
        small(torch.zeros(1, 4, 4))


def test_constant_indices_beyond_what_they_index(tmp_path: Path) -> None:
    class Some(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("index", torch.tensor([0, 3, 1]))
            self.head = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(torch.index_select(x, 1, self.index))  # type: ignore[arg-type]
            return out

    trellis.save(trellis.compact(Some(), torch.zeros(1, 4)), tmp_path)
    path = tmp_path / "model.json"
    description = json.loads(path.read_text())
    arguments = description["architecture"]["arguments"]
    arguments["shapes"]["inputs"][0]["shape"] = arguments["inputs"][0]["shape"] = [1, 3]
    path.write_text(json.dumps(description))
    with pytest.raises(trellis.TrellisError, match="holds 0 to 3 for 3 places"):
        trellis.load(tmp_path)


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
    with pytest.raises(trellis.TrellisError, match=r"expected .* at \$|invalid description of"):
        trellis.load(changed(folder, *path, to=value))
