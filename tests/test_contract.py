"""What the public names do. `test_api` compares the names and signatures themselves."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trellis

BY_PLACE: dict[Callable[..., Any], list[str]] = {
    trellis.prune: ["model", "example_inputs"],
    trellis.Pruner: ["model", "example_inputs"],
    trellis.compact: ["model", "example_inputs"],
    trellis.export_onnx: ["model", "example_inputs", "path"],
    trellis.export_c: ["model", "example_inputs", "folder"],
    trellis.export_wasm: ["model", "example_inputs", "folder"],
}


@pytest.mark.parametrize("function", BY_PLACE)
def test_options_go_by_name(function: Callable[..., Any]) -> None:
    found = inspect.signature(function).parameters
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert [n for n, p in found.items() if p.kind in kinds] == BY_PLACE[function]


def test_the_public_face_is_documented_and_complete() -> None:
    for name in trellis.__all__:
        assert inspect.getdoc(getattr(trellis, name)), name
    wanted = {"Masks", "TrellisError", "audit", "masks_of", "prune", "rule", "trace"}
    wanted |= {"Pruner", "Schedule", "load", "save", "skeleton"}
    wanted |= {"methods", "register_method"}
    wanted |= {"Runtime", "compact", "export_c", "export_onnx", "export_wasm"}
    assert wanted <= set(trellis.__all__) <= set(dir(trellis))
    assert trellis.__all__ == sorted(trellis.__all__)


def test_whoever_only_prunes_does_not_wait_for_skeletons() -> None:
    program = (
        "import sys, trellis; before = 'trellis.skeleton' in sys.modules; "
        "print(before, trellis.skeleton.GCN.__name__)"
    )
    source = str(Path(trellis.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "False GCN\n", ran.stderr
    assert not hasattr(trellis, "skeletons")


def test_every_error_is_one_of_ours() -> None:
    assert issubclass(trellis.TrellisError, ValueError)
    with pytest.raises(trellis.TrellisError):
        trellis.prune(nn.Linear(2, 2), torch.zeros(1, 2), sparsity=2)


def test_an_audit_has_these_attributes() -> None:
    report = trellis.audit(nn.Linear(2, 3), torch.zeros(1, 2))
    numbers = ("total", "kept", "live", "outputs", "outputs_reached")
    assert [getattr(report, name) for name in numbers] == [6, 6, 6, 3, 3]
    assert isinstance(report.live_fraction, float)
    (row,) = report.layers
    columns = ("name", "shape", "total", "kept", "accessible", "coaccessible", "live")
    assert [getattr(row, name) for name in columns] == ["weight", (3, 2), 6, 6, 6, 6, 6]
    assert isinstance(report.to_dict(), dict) and isinstance(str(report), str)
    assert report.live_masks["weight"].dtype == torch.bool
    assert report.live_masks["weight"].shape == (3, 2)


def test_masks_have_these_attributes(tmp_path: Any) -> None:
    model = nn.Linear(4, 5)
    masks = trellis.prune(model, torch.zeros(1, 4), sparsity=0.5)
    assert isinstance(masks, Mapping) and isinstance(masks, trellis.Masks)
    assert (masks.budget, masks.kept, masks.total, masks.sparsity) == (10, 10, 20, 0.5)
    assert masks["weight"].dtype == torch.bool
    assert trellis.masks_of(model) == masks
    masks.save(tmp_path / "masks.safetensors")
    assert trellis.Masks.load(tmp_path / "masks.safetensors") == masks
    assert set(masks.plain_state_dict(model)) == {"weight", "bias"}
    fresh = masks.apply(nn.Linear(4, 5))
    assert torch.equal(fresh.weight != 0, masks["weight"])
    masks.bake(fresh)
    assert set(fresh.state_dict()) == {"weight", "bias"}


def test_a_trellis_stands_in_for_model_and_inputs() -> None:
    net = trellis.trace(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), torch.zeros(1, 4))
    assert trellis.trace(net) is net
    assert trellis.audit(net).kept == 24
    assert trellis.prune(net, sparsity=0.5).kept == 12
    assert trellis.audit(net).kept == 12
