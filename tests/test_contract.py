"""The public names: others call these."""

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

REQUIRED = inspect.Parameter.empty

SHIPPED: dict[str, Any] = {"model": REQUIRED, "example_inputs": REQUIRED}
SOURCES: dict[str, Any] = {"values": "fp32", "data": None, "classes": None, "recording": None}

SIGNATURES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "audit": (trellis.audit, {"model": REQUIRED, "example_inputs": None}),
    "trace": (trellis.trace, {"model": REQUIRED, "example_inputs": None}),
    "masks_of": (trellis.masks_of, {"model": REQUIRED}),
    "Masks.load": (trellis.Masks.load, {"path": REQUIRED}),
    "save": (trellis.save, {"model": REQUIRED, "folder": REQUIRED, "notes": None}),
    "load": (trellis.load, {"folder": REQUIRED, "into": None}),
    "rule": (trellis.rule, {"ops": REQUIRED}),
    "compact": (trellis.compact, {"model": REQUIRED, "example_inputs": None}),
    "export_onnx": (trellis.export_onnx, SHIPPED | {"path": REQUIRED, "notes": None}),
    "export_c": (trellis.export_c, SHIPPED | {"folder": REQUIRED} | SOURCES),
    "export_wasm": (
        trellis.export_wasm,
        SHIPPED
        | {"folder": REQUIRED}
        | SOURCES
        | {"scene": None, "title": "A pruned network in the browser"},
    ),
    "Runtime": (trellis.Runtime, {"path": REQUIRED}),
    "Runtime.predict": (trellis.Runtime.predict, {"self": REQUIRED, "inputs": REQUIRED}),
    "skeleton.load": (
        trellis.skeleton.load,
        {"source": REQUIRED, "protocol": None, "skip_bad": False, "progress": False},
    ),
    "Pruner.step": (trellis.Pruner.step, {"self": REQUIRED}),
    "Pruner.state_dict": (trellis.Pruner.state_dict, {"self": REQUIRED}),
    "Pruner.load_state_dict": (
        trellis.Pruner.load_state_dict,
        {"self": REQUIRED, "state": REQUIRED},
    ),
    "GCN": (
        trellis.skeleton.GCN,
        {
            "nodes": 21,
            "channels": 96,
            "classes": 45,
            "heads": 16,
            "filters": 128,
            "blocks": 1,
            "shared": False,
            "combine": "concat",
            "bias": False,
            "adjacency": None,
            "edges": "limit",
            "activation": "relu",
        },
    ),
    "Pruner": (
        trellis.Pruner,
        {
            "model": REQUIRED,
            "example_inputs": None,
            "sparsity": None,
            "keep": None,
            "schedule": REQUIRED,
            "regrow": 0.0,
            "group": None,
            "options": REQUIRED,  # those of prune
        },
    ),
    "Schedule": (
        trellis.Schedule,
        {"curve": REQUIRED, "begin": 0, "end": None, "every": 1, "initial_sparsity": 0.0},
    ),
    "prune": (
        trellis.prune,
        {
            "model": REQUIRED,
            "example_inputs": None,
            "sparsity": None,
            "keep": None,
            "method": "viterbi",
            "saliency": "magnitude",
            "scope": "global",
            "consistent": None,
            "surrogate": "local",
            "inverse_alpha": 1.0,
            "row_normalize": False,
            "stochastic": False,
            "seed": 0,
            "cover_outputs": True,
            "ignore": (),
        },
    ),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_names_and_defaults(name: str) -> None:
    function, expected = SIGNATURES[name]
    found = inspect.signature(function).parameters
    assert {n: p.default for n, p in found.items()} == expected


BY_PLACE = {
    "prune": ["model", "example_inputs"],
    "Pruner": ["model", "example_inputs"],
    "compact": ["model", "example_inputs"],
    "export_onnx": ["model", "example_inputs", "path"],
    "export_c": ["model", "example_inputs", "folder"],
    "export_wasm": ["model", "example_inputs", "folder"],
    "skeleton.load": ["source"],
}


@pytest.mark.parametrize("name", BY_PLACE)
def test_options_go_by_name(name: str) -> None:
    found = inspect.signature(SIGNATURES[name][0]).parameters
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert [n for n, p in found.items() if p.kind in kinds] == BY_PLACE[name]


def test_the_public_face_is_documented_and_complete() -> None:
    for name in trellis.__all__:
        assert inspect.getdoc(getattr(trellis, name)), name
    wanted = {"Masks", "TrellisError", "audit", "masks_of", "prune", "rule", "trace"}
    wanted |= {"Pruner", "Schedule", "load", "save", "skeleton"}
    wanted |= {"Runtime", "compact", "export_c", "export_onnx", "export_wasm"}
    assert wanted <= set(trellis.__all__)


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
    assert issubclass(trellis.TrellisError, Exception)
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
