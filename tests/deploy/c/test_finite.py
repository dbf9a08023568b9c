"""An input that is not finite is refused: a kernel without branches would make numbers of it."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import trellis
from tests.deploy.tools import compiled
from tests.deploy.wasm.node import under_node

WIDTH = 11  # no multiple of a vector's lanes
WRONG = (np.nan, -np.nan, np.inf, -np.inf)
FINITE = (0.0, -0.0, 1e-45, -1e-40, 3.4028235e38, -3.4028235e38)


def model() -> nn.Module:
    """ReLU takes what is negative for zero, -inf too."""
    return nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("flags", ["-O0", "-O3", "-Ofast"])
def test_in_c(flags: str, tmp_path: Path) -> None:
    trellis.export_c(model(), torch.zeros(1, WIDTH), tmp_path)
    # Linked apart: with -Ofast, gcc adds what rounds subnormals to zero in the whole process.
    part = compiled([tmp_path / "model.c"], tmp_path / "model.o", flags, "-fPIC", "-c")
    built = compiled([part], tmp_path / "model.so", "-shared")
    run = ctypes.CDLL(str(built)).trellis_run
    scratch = np.zeros(WIDTH + 100, np.float32)
    output = np.full(2, 7.0, np.float32)

    def status(input: NDArray[np.float32]) -> int:
        pointers = (x.ctypes.data_as(ctypes.c_void_p) for x in (input, output, scratch))
        return int(run(*pointers))

    for place in range(WIDTH):
        for value in WRONG:
            x = np.ones(WIDTH, np.float32)
            x[place] = value
            assert status(x) == -1
            scratch[:WIDTH] = x
            assert status(scratch) == -1  # in place
            assert output.tolist() == [7.0, 7.0]
    for value in FINITE:
        assert status(np.full(WIDTH, value, np.float32)) == 0
    assert output.tolist() != [7.0, 7.0]


@pytest.mark.parametrize("value", WRONG)
def test_in_webassembly(value: float, tmp_path: Path) -> None:
    trellis.export_wasm(model(), torch.zeros(1, WIDTH), tmp_path)
    x = np.ones((1, WIDTH), np.float32)
    assert np.isfinite(under_node(tmp_path, x)).all()
    x[0, 5] = value
    with pytest.raises(AssertionError, match="RangeError: a number that is not finite"):
        under_node(tmp_path, x)
