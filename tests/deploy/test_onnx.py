"""ONNX files: what ONNX Runtime computes from them is what PyTorch computes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import trellis
from tests.deploy.compact.agreement import apart, drawn, outputs
from tests.zoo import ZOO

onnx: Any = pytest.importorskip("onnx", reason="needs onnx: pip install 'trellis-prune[onnx]'")
runtime: Any = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnxscript", reason="needs onnxscript")


def run(path: Path, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    feeds = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
    return [torch.from_numpy(y) for y in session.run(None, feeds)]


@pytest.mark.parametrize("name", ["mlp", "resnet18", "vit", "gcn_stacked", "stgcn"])
def test_masked_compacted_and_onnx_agree(name: str, tmp_path: Path) -> None:
    model, inputs = ZOO[name]()
    trellis.prune(model, inputs, sparsity=0.7)
    small = trellis.compact(model, inputs)
    written = trellis.export_onnx(small, inputs, tmp_path / "model.onnx")
    assert written.batched and written.difference < 1e-5
    assert written.size == (tmp_path / "model.onnx").stat().st_size
    fresh = drawn(inputs, 4)
    assert apart(outputs(model, fresh), run(written.path, fresh)) < 1e-5


def test_mostly_zero_weights_are_stored_sparsely_and_load(tmp_path: Path) -> None:
    layer = nn.Linear(200, 100)
    with torch.no_grad():
        layer.weight[torch.rand(layer.weight.shape) > 0.02] = 0
    x = torch.randn(3, 200)
    written = trellis.export_onnx(layer, x, tmp_path / "model.onnx")
    assert written.sparse == 1 and written.size < written.dense_size / 5
    assert 0.97 < written.zeros < 0.99
    (stored,) = onnx.load(written.path).graph.sparse_initializer
    places = onnx.numpy_helper.to_array(stored.indices)
    weight = layer.weight.detach().numpy().reshape(-1)
    # The exporter may store a weight transposed: the entries are the same, whatever their order.
    assert len(places) == np.count_nonzero(weight)
    entries = onnx.numpy_helper.to_array(stored.values)
    assert np.array_equal(np.sort(entries), np.sort(weight[weight != 0]))
    assert apart(outputs(layer, (x,)), run(written.path, (x,))) < 1e-5


def test_dense_weights_stay_dense(tmp_path: Path) -> None:
    written = trellis.export_onnx(nn.Linear(20, 10), torch.zeros(1, 20), tmp_path / "model.onnx")
    assert written.sparse == 0 and written.size == written.dense_size


def test_nothing_of_this_machine_is_in_the_file(tmp_path: Path) -> None:
    model, inputs = ZOO["mlp"]()
    written = trellis.export_onnx(trellis.compact(model, inputs), inputs, tmp_path / "model.onnx")
    data = written.path.read_bytes()
    assert b".py" not in data and str(Path.cwd()).encode() not in data
    (batch, width) = onnx.load(written.path).graph.input[0].type.tensor_type.shape.dim
    assert (batch.dim_param, width.dim_value) == ("batch", inputs[0].shape[1])


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    """ONNX has no adaptive maximum pooling."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    model, inputs = ZOO["pooling"]()
    with pytest.raises(trellis.TrellisError, match=r"cannot write.*adaptive_max_pool2d"):
        trellis.export_onnx(trellis.compact(model, inputs), inputs, path)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_difference_is_an_error_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trellis.deploy import onnx as export

    monkeypatch.setattr(export, "NEAR", -1.0)
    with pytest.raises(trellis.TrellisError, match="nothing was written"):
        trellis.export_onnx(nn.Linear(2, 2), torch.zeros(1, 2), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(trellis.TrellisError, match=r"onnxscript.*pip install 'trellis-prune\[onnx"):
        trellis.export_onnx(nn.Linear(2, 2), torch.zeros(1, 2), tmp_path / "model.onnx")
