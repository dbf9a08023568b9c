"""Weights and outputs that are not finite: no function takes them without a word."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import trellis
from trellis.errors import TrellisError
from trellis.skeleton import GCN, Layout, Normalization, Recognizer

X = torch.zeros(1, 4)


def spoilt(value: float) -> nn.Module:
    last = nn.Linear(6, 2)
    with torch.no_grad():
        last.weight[1, 3] = value
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), last)


def to_tables(model: nn.Module, folder: Path) -> Any:
    return trellis.export_c(model, X, folder / "c")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    "use",
    [
        lambda model, _: trellis.audit(model, X),
        lambda model, _: trellis.prune(model, X, sparsity=0.5),
        lambda model, _: trellis.prune(model, X, sparsity=0.5, method="random"),
        lambda model, _: trellis.prune(
            model, X, sparsity=0.5, saliency=lambda name, weight: torch.ones_like(weight)
        ),
        lambda model, _: trellis.compact(model, X),
        lambda model, folder: trellis.save(model, folder / "m"),
        lambda model, folder: trellis.export_onnx(model, X, folder / "m.onnx"),
        to_tables,
    ],
    ids=["audit", "prune", "random", "saliency", "compact", "save", "onnx", "c"],
)
def test_the_parameter_is_named_and_nothing_is_written(
    tmp_path: Path, use: Callable[[nn.Module, Path], Any], value: float
) -> None:
    with pytest.raises(TrellisError, match=r"'2\.weight'.* not finite"):
        use(spoilt(value), tmp_path)
    assert not list(tmp_path.iterdir())


def test_infinity_in_a_mask_of_attention_is_meant(tmp_path: Path) -> None:
    class Masked(nn.Module):
        mask: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1))
            self.head = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(torch.softmax(x @ x.mT + self.mask, -1) @ x)
            return out

    x = torch.zeros(1, 4, 4)
    small = trellis.compact(Masked(), x)
    trellis.save(small, tmp_path / "small")
    trellis.load(tmp_path / "small")
    trellis.save(Masked(), tmp_path / "model")
    trellis.load(tmp_path / "model", into=Masked())


def test_outputs_that_are_not_numbers(tmp_path: Path) -> None:
    class Divided(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            y = super().forward(input)
            return (y - y) / (y - y)

    with pytest.raises(TrellisError, match=r"output 0 .* NaN"):
        trellis.export_onnx(Divided(4, 2, bias=False), X, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_saved_models_that_diverged_are_not_loaded(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    trellis.save(model, tmp_path)
    poison(tmp_path, "0.bias")
    with pytest.raises(TrellisError, match=r"'0\.bias' holds 6 values that are not finite"):
        trellis.load(tmp_path, into=model)
    assert all(p.isfinite().all() for p in model.parameters())


def poison(folder: Path, name: str) -> None:
    """Write NaN over a parameter, and the hash of that, as older releases did."""
    path, told = folder / "model.safetensors", folder / "model.json"
    tensors = safetensors.torch.load_file(path)
    tensors[name].fill_(torch.nan)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    description = json.loads(told.read_text())
    description["tensors"] = hashlib.sha256(path.read_bytes()).hexdigest()
    told.write_text(json.dumps(description))


def test_the_run_time_says_that_a_network_overflows(tmp_path: Path) -> None:
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1e30)
    trellis.export_c(model, torch.zeros(1, 2), tmp_path / "c")
    network = trellis.Runtime(tmp_path / "c" / "model.trellis")
    assert network.predict(np.ones((1, 2), np.float32)).shape == (1, 1)
    with pytest.raises(TrellisError, match="overflows"):
        network.predict(np.full((1, 2), 1e30, np.float32))


def test_recognisers_need_an_origin_and_finite_answers() -> None:
    with pytest.raises(TrellisError, match="roots are empty"):
        Normalization((), 1.0)
    with pytest.raises(TrellisError, match="scale of the coordinates"):
        Normalization((0,), 1e-60)
    arm = Layout("arm", ("shoulder", "hand"), parents=(-1, 0))
    gcn = GCN(nodes=2, channels=12, classes=2, heads=2, filters=5)
    with torch.no_grad():
        gcn.dense.weight[0, 0] = torch.nan
    recogniser = Recognizer(gcn, 4, Normalization((0,), 1.0), ("wave", "point"), arm)
    with pytest.raises(TrellisError, match="answer for recording 0 is not finite"):
        recogniser.probabilities([np.ones((5, 2, 3), np.float32)])
