"""The kernel built for processors of other widths than this one's: the same outputs."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import trellis
from tests.deploy.networks import NETWORKS
from tests.deploy.tools import tool
from trellis.deploy import native_library as library
from trellis.deploy import runtime

NEEDS = {
    "x86-64": (), "x86-64-v3": ("avx2", "fma"), "x86-64-v4": ("avx512f",),
    "cascadelake": ("avx512_vnni",),
}  # fmt: skip
SAMPLES = 21  # no multiple of any vector's lanes


def use_kernel_for(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `trellis.Runtime` use a kernel that is built for another processor."""
    tool("gcc", "clang", "cc")
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("this processor is of another family than x86-64")
    able = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    if missing := [word for word in NEEDS[processor] if word not in able]:
        pytest.skip(f"this processor has no {missing[0]}")
    monkeypatch.setattr(library, "native_flags", lambda: ((f"-march={processor}",),))
    built = library.library.__wrapped__()
    monkeypatch.setattr(runtime, "library", lambda: built)


@pytest.mark.parametrize("name", ["cnn", "transformer", "the paper's gcn at 97 %", "gcn, trained"])
@pytest.mark.parametrize("processor", NEEDS)
def test_equal(processor: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel_for(processor, monkeypatch)
    model, example = NETWORKS[name]()
    trellis.export_c(model, example, tmp_path)
    network = trellis.Runtime(tmp_path / "model.trellis")
    x = torch.randn(SAMPLES, *example.shape[1:])
    with torch.no_grad():
        wanted = model(x).numpy()
    most = 1e-5 * np.abs(wanted).max()
    assert np.abs(network.predict(x) - wanted).max() <= most  # abreast
    alone = np.stack([network.predict(sample) for sample in x])
    assert np.abs(alone.reshape(wanted.shape) - wanted).max() <= most


@pytest.mark.parametrize("density", [0.02, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("processor", NEEDS)
def test_rows_of_any_density(
    processor: str, density: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sample by gathers or by windows, whichever is chosen; rows of very different lengths."""
    use_kernel_for(processor, monkeypatch)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 77), nn.Tanh(), nn.Linear(77, 21))
    for layer in (model[0], model[2]):
        assert isinstance(layer, nn.Linear)
        share = density * torch.linspace(0.0, 2.0, len(layer.weight))[:, None]
        with torch.no_grad():
            layer.weight *= torch.rand_like(layer.weight) < share
    trellis.export_c(model, torch.zeros(1, 300), tmp_path)
    network = trellis.Runtime(tmp_path / "model.trellis")
    x = torch.randn(SAMPLES, 300)
    wanted = model(x).detach().numpy()
    alone = np.stack([network.predict(sample) for sample in x])
    assert np.abs(alone - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("processor", NEEDS)
def test_infinite_units_reach_their_readers_alone(
    processor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one vector go through memory together; only one of them reads infinite units."""
    use_kernel_for(processor, monkeypatch)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64, bias=False), nn.Linear(64, 16, bias=False), nn.Sigmoid())
    first, second = model[0], model[1]
    assert isinstance(first, nn.Linear) and isinstance(second, nn.Linear)
    with torch.no_grad():
        first.weight[40:] = 3e38
        second.weight[:, 40:] = 0
        second.weight[5, 40:] = 1
    trellis.export_c(model, torch.zeros(1, 2), tmp_path)
    network = trellis.Runtime(tmp_path / "model.trellis")
    x = torch.tensor([2.0, 3.0])
    hidden = first(x)
    assert hidden.isinf().sum() == 24
    wanted = model[1:](hidden.clamp(max=1e30)).detach().numpy()  # dense, 0 · ∞ would be NaN
    assert wanted[5] == 1
    np.testing.assert_allclose(network.predict(x), wanted, rtol=1e-5)
