"""`trellis.Runtime` beyond equality: threads, shapes, compilers, caches."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import trellis
from tests.ship.c.test_main import described, recogniser, recording
from tests.ship.networks import paper
from tests.ship.tools import tool
from trellis.errors import TrellisError
from trellis.ship.runtime import cache, compiler


@pytest.fixture(autouse=True)
def _needs_a_compiler() -> None:
    tool("gcc", "clang", "cc")


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(2, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = self.a(x) + self.b(y)
        return z, z.reshape(-1, 2, 2).exp()


def opened(model: nn.Module, x: Any, folder: Path, **options: Any) -> trellis.Runtime:
    trellis.export_c(model, x, folder, **options)
    return trellis.Runtime(folder / "model.trellis")


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    model = Two()
    x, y = torch.randn(7, 3), torch.randn(7, 2)
    network = opened(model, (x[:1], y[:1]), tmp_path)
    for found, wanted in zip(network.predict(x, y), model(x, y), strict=True):
        np.testing.assert_allclose(found, wanted.detach(), rtol=1e-5, atol=1e-6)
    first, second = network.predict(x[0].tolist(), y[0].numpy())
    assert first.shape == (4,) and second.shape == (2, 2)
    with pytest.raises(TrellisError, match="2 inputs and 1 are given"):
        network.predict(x)


@pytest.mark.parametrize("batch", [0, 1, 2, 3, 4, 15, 16, 17, 33])
def test_any_batch(batch: int, tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    x = torch.randn(batch, 3)
    found = opened(model, torch.zeros(1, 3), tmp_path).predict(x)
    np.testing.assert_allclose(found, model(x).detach(), rtol=1e-5, atol=1e-6)


def test_wrong_shapes_are_told(tmp_path: Path) -> None:
    network = opened(nn.Linear(3, 2), torch.zeros(1, 3), tmp_path)
    for wrong in (np.zeros(4), np.zeros((2, 4)), np.zeros((2, 3, 1)), 1.0):
        with pytest.raises(TrellisError, match=r"the model reads \(3,\)"):
            network.predict(wrong)
    with pytest.raises(TrellisError, match="no array of numbers"):
        network.predict("abc")
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(TrellisError, match="not finite"):
            network.predict([[0.0, 1.0, 2.0], [0.0, value, 2.0]])


def test_threads_share_a_model(tmp_path: Path) -> None:
    model, example = paper(0.99)
    network = opened(model, example, tmp_path)
    x = torch.randn(8, 6, *example.shape[1:]).numpy()
    wanted = [network.predict(part) for part in x]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for found, right in zip(pool.map(network.predict, x), wanted, strict=True):
                np.testing.assert_array_equal(found, right)


def test_recordings(tmp_path: Path) -> None:
    one = recogniser()
    network = opened(one.model, torch.zeros(1, 3, 12), tmp_path, **described(one))
    assert network.classes == list(one.classes)
    given = [recording(frames) for frames in (1, 3, 4, 50)]
    np.testing.assert_allclose(network.prepared(given), one.inputs(given), atol=1e-6)
    with pytest.raises(TrellisError, match="recording 1 has the shape"):
        network.prepared([given[0], np.zeros((2, 4, 3))])


def test_kept_for_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built into an empty cache once; found there again even without a compiler at work."""
    trellis.export_c(nn.Linear(3, 2), torch.zeros(1, 3), tmp_path / "model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code = (
        "import sys, trellis; from trellis.ship.runtime.compiler import Compiler\n"
        "if len(sys.argv) > 2: Compiler.run = None\n"
        "print(trellis.Runtime(sys.argv[1]).predict([1.0, 2.0, 3.0]).shape)"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "model" / "model.trellis")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for more in ([], ["again"]):
        done = subprocess.run([*words, *more], capture_output=True, text=True, env=environment)
        assert done.stdout == "(2,)\n", done.stderr
    assert len(list((tmp_path / "cache" / "trellis").iterdir())) == 1


def test_a_cache_that_others_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "trellis"
    (tmp_path / "trellis").chmod(0o777)
    assert cache.folder() != tmp_path / "trellis"


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_candidates", list)
    compiler.compiler.cache_clear()
    try:
        with pytest.raises(TrellisError, match=r"no C compiler.*pip install ziglang"):
            compiler.compiler()
    finally:
        compiler.compiler.cache_clear()


def test_what_a_compiler_says_is_told() -> None:
    with pytest.raises(TrellisError, match="cannot build the run-time"):
        compiler.compiler().run(["-c", "nothing-here.c"])


def test_ziglang_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ziglang", reason="missing package: ziglang (pip install ziglang)")
    trellis.export_c(nn.Linear(3, 2), torch.zeros(1, 3), tmp_path / "model")
    code = "import sys, trellis; print(trellis.Runtime(sys.argv[1]).predict([1.0, 2.0, 3.0]).shape)"
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(tmp_path),
        "CC": f"{sys.executable} -m ziglang cc",
    }  # fmt: skip
    words = [sys.executable, "-c", code, str(tmp_path / "model" / "model.trellis")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.stdout == "(2,)\n", done.stderr
