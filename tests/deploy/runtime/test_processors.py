"""The kernel built for processors of other widths than this one's: the same outputs."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest
import torch

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
