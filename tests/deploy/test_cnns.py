"""Random CNNs: PyTorch = tables = C = run-time = WebAssembly = firmware, to 1e-5 of the largest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.deploy.random_cnns import random_cnn
from tests.deploy.runners import RUNNERS, c, firmware, wasm
from trellis.deploy.format import read_bytes, to_bytes
from trellis.deploy.tables import interpreted, tables
from trellis.deploy.tables.form import LOOPS, Loop

SAMPLES = 5


def wanted(model: nn.Module, example: Tensor) -> tuple[Tensor, np.ndarray]:
    x = torch.randn(SAMPLES, *example.shape[1:])
    with torch.no_grad():
        return x, model(x).reshape(SAMPLES, -1).numpy()


def close(found: np.ndarray, right: np.ndarray) -> bool:
    return bool(np.abs(found - right).max() <= 1e-5 * max(np.abs(right).max(), 1e-6))


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_the_file_and_the_runtime(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 8):
        model, example = random_cnn(seed)
        x, right = wanted(model, example)
        (tmp_path / str(seed)).mkdir()
        for form in ("file", "runtime"):
            assert close(RUNNERS[form](model, x, tmp_path / str(seed)), right), (seed, form)


@pytest.mark.parametrize("seed", range(100, 103))
def test_c(seed: int, tmp_path: Path) -> None:
    model, example = random_cnn(seed)
    x, right = wanted(model, example)
    assert close(c(model, x, tmp_path), right)


@pytest.mark.parametrize("seed", range(200, 202))
def test_wasm_and_firmware(seed: int, tmp_path: Path) -> None:
    model, example = random_cnn(seed)
    x, right = wanted(model, example)
    for run in (wasm, firmware):
        folder = tmp_path / run.__name__
        folder.mkdir()
        assert close(run(model, x, folder), right)


def test_every_kind_of_loop_is_among_them() -> None:
    steps = [step for seed in range(24) for step in tables(*random_cnn(seed)).steps]
    loops = [step for step in steps if isinstance(step, Loop)]
    assert {step.kind for step in loops} == set(LOOPS)
    assert any(len(loop.extras) for loop in loops)
    assert any(loop.out[3] > 1 for loop in loops) and any(loop.stride[1] > 1 for loop in loops)


@pytest.mark.parametrize("size", [2, 3, 4, 9])
def test_a_norm_behind_the_maximum_of_a_few_positions(size: int, tmp_path: Path) -> None:
    torch.manual_seed(size)
    norm = nn.BatchNorm1d(5)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    layers = nn.Conv1d(5, 5, 1, groups=5), nn.MaxPool1d(2), norm, nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(5 * (size // 2), 3)).eval()
    x, right = wanted(model, torch.zeros(1, 5, size))
    for form in ("file", "runtime"):
        assert close(RUNNERS[form](model, x, tmp_path), right), form


@pytest.mark.parametrize("seed", range(300, 305))
def test_loops_are_what_tables_are(seed: int) -> None:
    """Unrolled and looped: the same function, and the loop's weights are stored once."""
    model, example = random_cnn(seed)
    x = torch.randn(2, *example.shape[1:]).numpy()
    looped, unrolled = tables(model, example), tables(model, example, loops=False)
    right = interpreted(unrolled, x)
    assert close(interpreted(looped, x), right)
    again = read_bytes(to_bytes(looped))
    np.testing.assert_array_equal(interpreted(again, x), interpreted(looped, x))
