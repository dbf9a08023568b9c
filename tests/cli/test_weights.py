"""Weights files: what is read, what is refused, and tied parameters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import prune

import trellis
from tests.cli.conftest import Run
from tests.cli.models import Tied, mlp
from trellis.errors import TrellisError
from trellis.saving.model import load_weights, read_tensors, write_weights

AUDIT = ("audit", "tests.cli.models:mlp", "--input", "1x16", "--weights")


def test_a_plain_state_dict_there_and_back(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    path = tmp_path / "w.safetensors"
    write_weights(path, model.state_dict())
    fresh = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    fresh.load_state_dict(safetensors.torch.load_file(path))
    for name, tensor in model.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], tensor)
    load_weights(fresh, path)


def test_tied_parameters_are_stored_once_and_read_by_all(tmp_path: Path) -> None:
    model, path = Tied(), tmp_path / "w.safetensors"
    masks = trellis.prune(model, torch.zeros(1, 4, dtype=torch.int64), sparsity=0.5)
    state = masks.plain_state_dict(model)
    write_weights(path, state)
    assert list(read_tensors(path)[0]) == ["middle.bias", "middle.weight", "table.weight"]
    ours, theirs, untied = Tied(), Tied(), Tied()
    load_weights(ours, path)
    safetensors.torch.load_model(theirs, path)
    untied.last.weight = nn.Parameter(torch.zeros(20, 8))
    load_weights(untied, path)
    for fresh in (ours, theirs, untied):
        assert all(torch.equal(fresh.state_dict()[n], t) for n, t in state.items())


def test_views_of_one_tensor_are_stored_apart(tmp_path: Path) -> None:
    whole = torch.arange(6.0).reshape(2, 3)
    path = tmp_path / "w.safetensors"
    write_weights(path, {"whole": whole, "row": whole[0], "turned": whole.T})
    tensors, _ = read_tensors(path)
    assert torch.equal(tensors["row"], whole[0]) and torch.equal(tensors["turned"], whole.T)


def test_state_that_is_no_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrellisError, match="'_extra_state'"):
        write_weights(tmp_path / "w", {"_extra_state": 3})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        (lambda s: s.pop("2.weight"), ["it has no 2.weight"]),
        (lambda s: s.update(head=torch.ones(1)), ["the model has no head"]),
        (
            lambda s: s.update({f"layer{i}": torch.ones(1) for i in range(5)}),
            ["the model has no layer0, layer1, layer2 and 2 more"],
        ),
        (
            lambda s: s.update({"0.weight": torch.ones(32, 15)}),
            ["shapes differ: 0.weight (file 32x15, model 32x16)"],
        ),
        (
            lambda s: s.update({"0.weight_orig": s.pop("0.weight")}),
            ["it has no 0.weight", "the model has no 0.weight_orig", "saved with masks on"],
        ),
    ],
)
def test_keys_and_shapes_that_do_not_fit(
    fails: Callable[..., str],
    tmp_path: Path,
    change: Callable[[dict[str, torch.Tensor]], None],
    messages: list[str],
) -> None:
    state = mlp().state_dict()
    change(state)
    safetensors.torch.save_file(state, tmp_path / "w.safetensors")
    error = fails(*AUDIT, "w.safetensors")
    assert "'w.safetensors' does not fit the model" in error
    assert all(message in error for message in messages)


def test_pickles_are_never_loaded(run: Run, tmp_path: Path) -> None:
    torch.save(mlp().state_dict(), tmp_path / "w.pt")
    ran = run(*AUDIT, "w.pt")
    error, *code = ran.err.splitlines()
    assert ran.status == 2 and "expected a safetensors file, got .pt" in error
    exec("\n".join(line.strip() for line in code))  # the two lines convert the file
    assert run(*AUDIT, "w.safetensors").status == 0


def test_files_that_are_none(fails: Callable[..., str], tmp_path: Path) -> None:
    assert "there is no file 'gone.safetensors'" in fails(*AUDIT, "gone.safetensors")
    (tmp_path / "folder").mkdir()
    assert "'folder' cannot be read" in fails(*AUDIT, "folder")
    (tmp_path / "empty").write_bytes(b"")
    assert "is not a safetensors file" in fails(*AUDIT, "empty")


def test_a_masks_file_is_no_weights_file(fails: Callable[..., str], tmp_path: Path) -> None:
    trellis.Masks({"0.weight": torch.ones(32, 16, dtype=torch.bool)}).save(tmp_path / "m")
    assert "holds masks, not weights: pass it as --masks" in fails(*AUDIT, "m")


def test_the_weights_of_a_saved_model_can_be_read(tmp_path: Path) -> None:
    model = mlp()
    masks = trellis.prune(model, torch.zeros(1, 16), sparsity=0.9)
    trellis.save(model, tmp_path / "m")
    fresh = mlp()
    load_weights(fresh, tmp_path / "m" / "model.safetensors")
    assert all(torch.equal(fresh.state_dict()[n] != 0, mask) for n, mask in masks.items())


def test_a_factory_that_prunes_takes_no_weights(tmp_path: Path) -> None:
    model, path = mlp(), tmp_path / "w.safetensors"
    write_weights(path, model.state_dict())
    prune.l1_unstructured(model.get_submodule("0"), "weight", amount=0.5)
    with pytest.raises(TrellisError, match=r"'0\.weight' is pruned or parametrized"):
        load_weights(model, path)
