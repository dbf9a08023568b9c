"""The registry of export targets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trellis
from tests.cli.shell import shell
from trellis.deploy.exporters import EXPORTERS

X = torch.zeros(1, 3)
PACKAGE = '''
import trellis

@trellis.register_exporter("count")
def count(model, example_inputs, path):
    """Write how many weights there are."""
    total = trellis.audit(model, example_inputs).total
    path.write_text(str(total))
    return f"{path}: {total} weights"
'''


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after the test what it registers."""
    monkeypatch.setattr(EXPORTERS, "entries", dict(EXPORTERS.entries))
    monkeypatch.setattr(EXPORTERS, "_homes", dict(EXPORTERS._homes))


def test_built_in_targets_are_the_public_functions() -> None:
    assert {"c", "onnx", "wasm"} <= set(EXPORTERS.names())
    for name in ("c", "onnx", "wasm"):
        assert EXPORTERS.get(name) is getattr(trellis, f"export_{name}")


def test_a_target_by_name_writes_what_its_function_writes(tmp_path: Path) -> None:
    layer = nn.Linear(3, 2)
    trellis.export_c(layer, X, tmp_path / "a", values="fp16")
    trellis.export(layer, X, tmp_path / "b", target="c", values="fp16")
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_a_target_of_ones_own(tmp_path: Path) -> None:
    @trellis.register_exporter("mine")
    def mine(model: nn.Module, example_inputs: Any, path: Path, *, times: int = 1) -> int:
        return times * trellis.audit(model, example_inputs).total

    assert trellis.export(nn.Linear(3, 2), X, tmp_path, target="mine", times=2) == 12
    with pytest.raises(trellis.TrellisError, match=r"unknown export target 'yours'; known: .*mine"):
        trellis.export(nn.Linear(3, 2), X, tmp_path, target="yours")


@pytest.mark.parametrize("name", ["c", "onnx", "wasm"])
def test_a_name_that_is_taken(name: str) -> None:
    with pytest.raises(trellis.TrellisError, match=f"{name!r} is already registered"):
        trellis.register_exporter(name)(test_a_name_that_is_taken)


def test_a_target_of_an_installed_package(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(PACKAGE)
    about = tmp_path / "counting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[trellis.exporters]\ncount = counting:count\n")
    (tmp_path / "shop.py").write_text("import torch\nmodel = torch.nn.Linear(3, 2)\n")
    command = "export count shop:model --input 1x3 --out count.txt"
    ran = shell(f"PYTHONPATH=$PYTHONPATH:. {sys.executable} -m trellis {command}", tmp_path)
    assert (ran.stdout, ran.stderr) == ("count.txt: 6 weights\n", "")
    assert (tmp_path / "count.txt").read_text() == "6"
