"""Windows say, without an index, what the index says."""

from __future__ import annotations

import pytest
import torch

from tests.zoo import ZOO
from trellis import trace
from trellis.graph import steps as window
from trellis.graph.steps import Gather

NAMES = [
    "resnet18", "mobilenet", "densenet_block", "unet", "vit", "strided_convolution",
    "convolution1d", "convolution3d", "transposed_convolution", "pooling",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_windows_read_what_the_index_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = ZOO[name]()
    gathers = [step for step in trace(model, inputs).steps if isinstance(step, Gather)]
    for step in gathers:
        inside = step.index >= 0
        assert torch.equal(step.inside, inside)
        if bool(inside.all()):
            assert step.reached is None
        else:
            assert step.reached is not None
            assert torch.equal(step.reached, inside.any(0, keepdim=True))
        if step.window is not None:
            x = torch.randn(2, step.x.shape[step.dim])
            read = torch.where(inside, x[:, step.index.clamp(min=0)], 0.0)
            for slices in (0, 64):  # by strides, and by slices
                monkeypatch.setattr(window, "SLICES", slices)
                assert torch.equal(step.window.read(x), read)
    assert gathers
