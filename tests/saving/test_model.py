"""Saved equals loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import prune as torch_prune
from torch.nn.utils.parametrizations import weight_norm

import trellis
from tests.cli.models import Tied
from tests.training.networks import CHANNELS, NODES, OPTIONS, gcn
from trellis.errors import TrellisError
from trellis.saving.folder import read_folder

X = torch.randn(4, NODES, CHANNELS, dtype=torch.float64)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3))


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_our_own_models_need_nothing_but_the_folder(
    tmp_path: Path, name: str, pruned: bool
) -> None:
    model = gcn(1, **OPTIONS[name])
    if pruned:
        masks = trellis.prune(model, X[:1], sparsity=0.6)
    trellis.save(model, tmp_path / "m")
    loaded = trellis.load(tmp_path / "m")
    assert type(loaded) is type(model)
    assert torch.equal(loaded(X), model(X))
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    if pruned:
        assert trellis.masks_of(loaded) == masks
    # Once more: what was loaded is saved to the same bytes.
    trellis.save(loaded, tmp_path / "again")
    for file in ("model.safetensors", "model.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "m" / file).read_bytes()


def test_what_is_loaded_lies_in_memory_as_what_was_made_does(tmp_path: Path) -> None:
    """On whole lines of it: elsewhere products may be rounded otherwise than they were."""
    model = gcn(1, heads=3, bias=True)
    trellis.save(model, tmp_path / "m")
    loaded = trellis.load(tmp_path / "m")
    assert {weight.data_ptr() % 64 for weight in loaded.parameters()} == {0}
    inside = safetensors.torch.load_file(tmp_path / "m" / "model.safetensors")
    assert {weight.data_ptr() % 64 for weight in inside.values()} != {0}


def test_attention_stays_limited_after_loading(tmp_path: Path) -> None:
    model = gcn(1, **OPTIONS["limit"])
    trellis.save(model, tmp_path / "m")
    loaded = trellis.load(tmp_path / "m")
    with torch.no_grad():
        loaded.get_parameter("blocks.0.attention").fill_(1)
        model.get_parameter("blocks.0.attention").fill_(1)
    assert torch.equal(loaded(X), model(X))
    assert not torch.equal(loaded(X), gcn(1)(X))


def test_any_model_can_be_loaded_into(tmp_path: Path) -> None:
    model, x = mlp(), torch.randn(5, 6)
    model(x)  # moves the statistics of the norm
    masks = trellis.prune(model, x[:1], sparsity=0.5)
    trellis.save(model, tmp_path / "m", notes={"a": [1, None, "ü"]})
    fresh = mlp()
    assert trellis.load(tmp_path / "m", into=fresh) is fresh
    assert torch.equal(fresh.eval()(x), model.eval()(x))
    assert trellis.masks_of(fresh) == masks
    assert read_folder(tmp_path / "m").notes == {"a": [1, None, "ü"]}


def test_masks_that_the_model_had_give_way(tmp_path: Path) -> None:
    x = torch.randn(5, 6)
    dense, pruned, torchs = mlp(), mlp(), mlp()
    trellis.save(dense, tmp_path / "dense")
    trellis.prune(pruned, x[:1], sparsity=0.5)
    torch_prune.l1_unstructured(torchs[0], "weight", amount=0.5)
    trellis.save(pruned, tmp_path / "pruned")
    for worn in (pruned, torchs):
        trellis.load(tmp_path / "dense", into=worn)
        assert torch.equal(worn.eval()(x), dense.eval()(x))
        with pytest.raises(TrellisError, match="no masks"):
            trellis.masks_of(worn)
        trellis.load(tmp_path / "pruned", into=worn)
        assert trellis.masks_of(worn).kept == 40


def test_torchs_masks_are_saved_as_ours(tmp_path: Path) -> None:
    model = mlp()
    torch_prune.l1_unstructured(model[0], "weight", amount=0.5)
    trellis.save(model, tmp_path)
    loaded = trellis.load(tmp_path, into=mlp())
    assert trellis.masks_of(loaded) == trellis.masks_of(model)


def test_tied_parameters_are_stored_once(tmp_path: Path) -> None:
    model, tokens = Tied(), torch.tensor([[1, 2, 3, 4]])
    masks = trellis.prune(model, tokens, sparsity=0.5)
    trellis.save(model, tmp_path)
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert {"table.weight", "last.weight"} & stored.keys() == {"table.weight"}
    loaded = trellis.load(tmp_path, into=Tied())
    assert torch.equal(loaded(tokens), model(tokens)) and trellis.masks_of(loaded) == masks
    assert torch.equal(loaded.last.weight, loaded.table.weight)


def test_the_weights_are_plain_and_have_no_negative_zero(tmp_path: Path) -> None:
    """Any reader of safetensors gets the pruned network, under its own names."""
    model = nn.Linear(8, 8)
    nn.init.constant_(model.weight, -1.0)
    trellis.Masks({"weight": torch.eye(8, dtype=torch.bool)}).apply(model)
    trellis.save(model, tmp_path)
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert set(stored) == {"weight", "bias", "masks:weight"}
    assert stored["masks:weight"].numel() == 8
    assert torch.equal(stored["weight"], -torch.eye(8))
    assert not torch.signbit(stored["weight"][~torch.eye(8, dtype=torch.bool)]).any()


def test_a_kept_connection_may_be_zero(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    nn.init.zeros_(model.weight)
    trellis.Masks({"weight": torch.tensor([[True, False]])}).apply(model)
    trellis.save(model, tmp_path)
    assert trellis.masks_of(trellis.load(tmp_path, into=nn.Linear(2, 1))).kept == 1


def test_a_parametrization_of_ones_own_is_evaluated(tmp_path: Path) -> None:
    model = weight_norm(nn.Linear(3, 2))
    trellis.save(model, tmp_path)
    x = torch.randn(4, 3)
    torch.testing.assert_close(trellis.load(tmp_path, into=nn.Linear(3, 2))(x), model(x))
    with pytest.raises(TrellisError, match="'weight' has a parametrization"):
        trellis.load(tmp_path, into=weight_norm(nn.Linear(3, 2)))


def test_saving_again_replaces_and_leaves_other_files_alone(tmp_path: Path) -> None:
    trellis.save(nn.Linear(2, 1), tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    model = nn.Linear(3, 1)
    trellis.save(model, tmp_path)
    assert torch.equal(trellis.load(tmp_path, into=nn.Linear(3, 1)).weight, model.weight)
    assert sorted(os.listdir(tmp_path)) == ["mine.txt", "model.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("notes", "message"),
    [({"x": {1, 2}}, "notes cannot be written as JSON"), ({"x": float("nan")}, "as JSON")],
)
def test_what_cannot_be_saved_leaves_nothing(
    tmp_path: Path, notes: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrellisError, match=message):
        trellis.save(nn.Linear(2, 1), tmp_path / "m", notes=notes)
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(2, 1)
    trellis.save(model, tmp_path / "old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    for folder in ("old", "new"):
        with pytest.raises(TrellisError, match="No space left"):
            trellis.save(nn.Linear(2, 1), tmp_path / folder)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["old"]
    assert torch.equal(trellis.load(tmp_path / "old", into=nn.Linear(2, 1)).weight, model.weight)


def test_places_that_take_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "gone/m", "file/m"):
        with pytest.raises(TrellisError):
            trellis.save(nn.Linear(2, 1), tmp_path / place)


def test_names_that_mean_something_else_are_refused(tmp_path: Path) -> None:
    model = nn.ParameterDict({"masks:weight": nn.Parameter(torch.ones(2))})
    with pytest.raises(TrellisError, match="does not begin with 'masks:'"):
        trellis.save(model, tmp_path)
