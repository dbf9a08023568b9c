"""WebAssembly: small, without imports, with SIMD, and the same as PyTorch on recordings too."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import trellis
from tests.deploy.c.test_main import ARM, described, outputs, recogniser, recording
from tests.deploy.networks import paper
from tests.deploy.tools import tool
from tests.deploy.wasm.node import under_node
from trellis.deploy.recording import Recording
from trellis.deploy.wasm import Clip, Scene
from trellis.deploy.wasm import write as build
from trellis.deploy.wasm.write import packaged, toolchain
from trellis.errors import TrellisError

# Fewer frames than chunks, as many, more than the memory it begins with holds.
LENGTHS = (1, 3, 4, 11, 2000)


def arm_scene(*lengths: int, label: str | None = None) -> Scene:
    clips = [Clip(f"{n} frames", recording(n), label) for n in lengths]
    return Scene(clips, ARM.bones, (0, 1, 2))


@pytest.mark.parametrize("values", ["fp32", "fp16", "int8"])
def test_recordings(values: str, tmp_path: Path) -> None:
    one = recogniser()
    trellis.export_wasm(one.model, torch.zeros(1, 3, 12), tmp_path, values=values, **described(one))
    error = {"fp32": 1e-5, "fp16": 3e-3, "int8": 3e-2}[values]
    for frames in LENGTHS:
        given = recording(frames)
        wanted = outputs(one, given)
        [found] = under_node(tmp_path, given, "recorded")
        np.testing.assert_allclose(found, wanted, atol=error * np.abs(wanted).max())


def facts(path: Path) -> dict[str, Any]:
    """Of a module: what it imports and exports."""
    script = (
        "const m = new WebAssembly.Module(require('fs').readFileSync(process.argv[1]));"
        "console.log(JSON.stringify({imports: WebAssembly.Module.imports(m).length,"
        "exports: WebAssembly.Module.exports(m).map(e => e.name)}))"
    )
    command = [tool("node", package="nodejs"), "-e", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.GELU()])  # without libm, and with it
def test_it_imports_nothing(activation: nn.Module, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(9, 7), activation, nn.Linear(7, 2))
    written = trellis.export_wasm(model, torch.zeros(1, 9), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"model.wasm", "model.mjs", "README.md"}
    assert written.page is None and written.wasm == (tmp_path / "model.wasm").stat().st_size
    found = facts(tmp_path / "model.wasm")
    assert found["imports"] == 0
    assert {"memory", "run", "inputs", "outputs", "scratch", "output"} <= set(found["exports"])
    assert "prepare" not in found["exports"]  # it knows nothing of recordings


def test_the_papers_network_at_a_thousandth_fits_in_50_kb(tmp_path: Path) -> None:
    model, x = paper(0.999)
    joints = tuple(f"joint {i}" for i in range(21))
    clip = Clip("wave", np.random.default_rng(0).normal(size=(60, 21, 3)).astype(np.float32))
    written = trellis.export_wasm(
        model, x, tmp_path, classes=[f"action number {i}" for i in range(45)],
        recording=Recording(joints, 32, (0,), 1.0),
        scene=Scene([clip], [(0, i) for i in range(1, 21)], range(21)),
    )  # fmt: skip
    assert written.page is not None
    assert (tmp_path / "index.html").stat().st_size == written.page + written.recordings
    assert written.page <= 50_000
    assert written.recordings == 60 * 21 * 3 * 2 * 4 // 3
    assert "index.html" in str(written) and "1 recording " in str(written)


def test_clips_are_rounded_to_16_bits() -> None:
    frames = 5 + np.random.default_rng(0).normal(size=(50, 4, 3)).astype(np.float32)
    found = Clip("any", frames).shown()
    assert found.dtype == np.float32
    assert 0 < np.abs(found - frames).max() < np.ptp(frames) / 60_000
    still = np.full((2, 4, 3), 7.25, np.float32)
    np.testing.assert_array_equal(Clip("still", still).shown(), still)


def test_without_a_compiler_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain.cache_clear()
    monkeypatch.setattr(build, "zig", lambda: None)
    monkeypatch.setattr(build, "program", lambda name: None)
    with pytest.raises(TrellisError, match="pip install ziglang"):
        trellis.export_wasm(nn.Linear(2, 2), torch.zeros(1, 2), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    toolchain.cache_clear()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    one = recogniser()
    x = torch.zeros(1, 3, 12)
    with pytest.raises(TrellisError, match="classes and a recording"):
        trellis.export_wasm(one.model, x, tmp_path, scene=arm_scene(5))
    with pytest.raises(TrellisError, match="no clips"):
        trellis.export_wasm(one.model, x, tmp_path, scene=arm_scene(), **described(one))
    wide = Scene([Clip("wide", np.zeros((5, 4, 3), np.float32))], ARM.bones, (0, 1, 2))
    with pytest.raises(TrellisError, match=r"'wide': expected .*got \(5, 4, 3\)"):
        trellis.export_wasm(one.model, x, tmp_path, scene=wide, **described(one))
    foreign = Scene(arm_scene(5).clips, [(0, 3)], (0, 1, 2))
    with pytest.raises(TrellisError, match="bones"):
        trellis.export_wasm(one.model, x, tmp_path, scene=foreign, **described(one))
    (tmp_path / "taken").write_text("")
    with pytest.raises(TrellisError, match="it is a file"):
        trellis.export_wasm(one.model, x, tmp_path / "taken")


def test_what_is_generated_is_free(tmp_path: Path) -> None:
    trellis.export_wasm(nn.Linear(2, 2), torch.zeros(1, 2), tmp_path)
    for name in ("model.mjs", "README.md"):
        assert "may be used under any licence" in (tmp_path / name).read_text()
    for name in ("model.js", "page.js", "page.css"):
        assert "</s" not in packaged(name).lower()  # it would end its own element
