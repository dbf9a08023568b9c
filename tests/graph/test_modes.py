"""Models that torch has compiled to TorchScript, and calls under `torch.inference_mode`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trellis
from trellis.errors import TrellisError

X = torch.zeros(1, 4)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


CALLS: dict[str, Callable[[nn.Module, Path], Any]] = {
    "audit": lambda model, _: trellis.audit(model, X),
    "prune": lambda model, _: trellis.prune(model, X, sparsity=0.5),
    "compact": lambda model, _: trellis.compact(model, X),
    "masks_of": lambda model, _: trellis.masks_of(model),
    "save": lambda model, path: trellis.save(model, path / "m"),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("call", CALLS)
def test_torchscript_is_refused_in_one_line(call: str, tmp_path: Path) -> None:
    for scripted in (torch.jit.script(mlp()), torch.jit.trace(mlp(), X)):
        for model in (scripted, nn.Sequential(scripted, nn.Linear(2, 2))):
            with pytest.raises(TrellisError, match=r"TorchScript module 'Sequential'.*before"):
                CALLS[call](model, tmp_path)


def test_inference_mode_changes_nothing(tmp_path: Path) -> None:
    model, plain = mlp(), mlp()
    plain.load_state_dict(model.state_dict())
    masks = trellis.prune(plain, X, sparsity=0.5)
    with torch.inference_mode():
        x = torch.zeros(1, 4)
        assert trellis.audit(model, x).total == 36
        assert trellis.prune(model, x, sparsity=0.5) == masks
        small = trellis.compact(model, x)
        trellis.save(model, tmp_path / "m")
        trellis.load(tmp_path / "m", into=plain)
    for trained in (model, plain, small):  # what was made there can be trained
        assert not any(t.is_inference() for t in (*trained.parameters(), *trained.buffers()))
        trained(torch.ones(1, 4)).sum().backward()


def test_parameters_made_in_inference_mode_are_told(tmp_path: Path) -> None:
    trellis.save(mlp(), tmp_path / "m")
    with torch.inference_mode():
        model = mlp()
    assert trellis.audit(model, X).total == 36  # looking is fine
    for change in (
        lambda: trellis.prune(model, X, sparsity=0.5),
        lambda: trellis.load(tmp_path / "m", into=model),
    ):
        with pytest.raises(TrellisError, match=r"'0\.weight', which .* torch\.inference_mode"):
            change()
