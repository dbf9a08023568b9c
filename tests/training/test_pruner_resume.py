"""Interrupted and resumed, a training ends as if it had not been, to the bit."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import trellis
from trellis import Pruner, Schedule
from trellis.errors import TrellisError

from .gradual import adam, example, gradual, guaranteed, learn, network, same, sgd, states


def tight(model: nn.Module, regrow: float) -> Pruner:
    return gradual(model, keep=9, sparsity=None, regrow=regrow)


def roomy(model: nn.Module, regrow: float) -> Pruner:
    return gradual(model, regrow=regrow)


def written(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Through files that hold no code: JSON, and tensors by name."""
    plain = {name: value for name, value in state.items() if name not in ("masks", "inside")}
    (folder / "pruner.json").write_text(json.dumps(plain))
    tensors = {
        f"{kind}/{name}": mask for kind in ("masks", "inside") for name, mask in state[kind].items()
    }
    safetensors.torch.save_file(tensors, folder / "pruner.safetensors")
    read: dict[str, dict[str, Tensor]] = {"masks": {}, "inside": {}}
    for key, mask in safetensors.torch.load_file(folder / "pruner.safetensors").items():
        kind, name = key.split("/")
        read[kind][name] = mask
    found: dict[str, Any] = json.loads((folder / "pruner.json").read_text())
    return found | read


@pytest.mark.parametrize(
    ("stop", "optimizer", "make", "regrow", "model_first"),
    [
        (0, sgd, roomy, 0.3, True),
        (3, adam, roomy, 0.0, False),
        (3, adam, roomy, 0.3, True),  # just before a renewal
        (4, sgd, roomy, 0.3, False),  # just after one
        (3, sgd, tight, 0.0, True),
        (4, adam, tight, 0.3, False),
        (8, adam, roomy, 0.3, True),
    ],
)
def test_resumed_is_uninterrupted(
    stop: int, optimizer: Any, make: Any, regrow: float, model_first: bool, tmp_path: Path
) -> None:
    model = network()
    pruner, trained = make(model, regrow), optimizer(model)
    learn(model, trained, pruner, range(stop))
    optimizer_state = deepcopy(trained.state_dict())  # which else goes on with the optimizer
    saved = states(model), optimizer_state, written(tmp_path, pruner.state_dict())
    learn(model, trained, pruner, range(stop, 10))

    fresh = network(seed=5)  # other weights: all must come from what was saved
    resumed = make(fresh, regrow)
    again = optimizer(fresh)
    if model_first:
        fresh.load_state_dict(saved[0])
    resumed.load_state_dict(saved[2])
    if not model_first:
        fresh.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    assert resumed.steps == stop
    learn(fresh, again, resumed, range(stop, 10))
    assert same(states(fresh), states(model)) and resumed.masks == pruner.masks
    assert (resumed.budget, resumed.done) == (pruner.budget, True)
    guaranteed(resumed)


def test_a_state_does_not_change_when_training_goes_on() -> None:
    model = network()
    pruner, optimizer = gradual(model), sgd(model)
    learn(model, optimizer, pruner, range(2))
    state = pruner.state_dict()
    masks = {name: mask.clone() for name, mask in state["masks"].items()}
    learn(model, optimizer, pruner, range(2, 8))
    assert same(state["masks"], masks) and state["steps"] == 2


def test_another_plan_is_refused() -> None:
    state = gradual(network()).state_dict()
    others = {
        "target": gradual(network(), sparsity=0.95),
        "schedule.end": gradual(network(), end=9),
        "method": gradual(network(), method="magnitude"),
        "regrow": gradual(network(), regrow=0.1),
    }
    for word, other in others.items():
        with pytest.raises(TrellisError, match=f"another plan: .*{re.escape(word)} was"):
            other.load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "of version 1, got version 2"),
        ({"steps": -1}, "is damaged: steps=-1"),
        ({"budget": 1.5}, "is damaged: budget=1.5"),
        ({"masks": {}}, "masks for another model: '0.weight'"),
        ({"masks": None}, "masks for another model"),
        ({"inside": {"0.weight": 1}}, "inside for another model"),
        ({"plan": None}, "another plan"),
    ],
)
def test_damage_is_told(change: dict[str, Any], words: str) -> None:
    model = network()
    pruner = gradual(model)
    before = pruner.masks
    with pytest.raises(TrellisError, match=words):
        pruner.load_state_dict(pruner.state_dict() | change)
    assert pruner.masks == before and pruner.steps == 0


def test_masks_of_other_shapes_or_types_are_told() -> None:
    pruner = gradual(network())
    state = pruner.state_dict()
    for mask in (torch.ones(3, 3, dtype=torch.bool), torch.ones(24, 12), None):
        with pytest.raises(TrellisError, match=r"expected a bool tensor .* at masks\['0.weight'\]"):
            pruner.load_state_dict(state | {"masks": state["masks"] | {"0.weight": mask}})
    with pytest.raises(TrellisError, match="expected the state of a Pruner"):
        pruner.load_state_dict({})
    small = tight(network(), 0.0)
    assert small.state_dict()["inside"]
    with pytest.raises(TrellisError, match="inside for another model"):
        small.load_state_dict(small.state_dict() | {"inside": {}})


def test_a_state_with_the_former_name_of_initial_sparsity_is_loaded() -> None:
    pruner = gradual(network())
    pruner.step()
    state = pruner.state_dict()
    schedule = dict(state["plan"]["schedule"])
    schedule["start"] = schedule.pop("initial_sparsity")
    plan = state["plan"] | {"schedule": schedule}
    older = {name: value for name, value in state.items() if name != "digest"} | {"plan": plan}
    other = gradual(network())
    other.load_state_dict(older)
    assert other.steps == 1
    schedule["start"] = 0.5
    with pytest.raises(TrellisError, match=r"initial_sparsity was 0\.5 and is 0\.0"):
        other.load_state_dict(older)


def test_one_shot_resumes_without_pruning_again() -> None:
    """Made anew, it prunes the fresh weights at once; the state then says what was kept."""
    schedule = Schedule("one-shot")
    model, fresh = network(), network(seed=5)
    pruner = Pruner(model, example(), sparsity=0.9, schedule=schedule)
    learn(model, sgd(model), pruner, range(2))
    resumed = Pruner(fresh, example(), sparsity=0.9, schedule=schedule)
    assert resumed.masks != pruner.masks
    fresh.load_state_dict(model.state_dict())
    resumed.load_state_dict(pruner.state_dict())
    assert resumed.masks == pruner.masks and same(states(fresh), states(model))
    assert trellis.audit(fresh, example()).live_fraction == 1.0
