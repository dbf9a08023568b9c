"""A folder that is damaged, hostile, of another release or of another model: one clear error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import trellis
from tests.training.networks import CHANNELS, NODES, OPTIONS, gcn
from trellis.errors import TrellisError

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = gcn(0, **OPTIONS["limit"])
    trellis.prune(model, torch.zeros(1, NODES, CHANNELS, dtype=torch.float64), sparsity=0.5)
    trellis.save(model, tmp_path / "m")
    return tmp_path / "m"


def rewritten(folder: Path, change: Change) -> None:
    path = folder / "model.json"
    description = json.loads(path.read_text())
    change(description)
    path.write_text(json.dumps(description))


def retensored(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Change the tensors, and the hash with them, as somebody who means harm would."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    change(tensors)
    safetensors.torch.save_file(tensors, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    rewritten(folder, lambda found: found.update(tensors=digest))


def arguments(**changes: Any) -> Change:
    return lambda found: found["architecture"]["arguments"].update(changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "does not describe a Trellis model"),
        (lambda d: d.update(version=2), "is of version 2; this release of Trellis reads version 1"),
        (lambda d: d.pop("version"), "is of version None"),
        (lambda d: d.pop("tensors"), "expected the key 'tensors'"),
        (lambda d: d.update(tensors="00"), "is not the file that model.json"),
        (lambda d: d.update(notes=[]), r"object at \$\.notes"),
        (lambda d: d.update(architecture=[]), r"at \$\.architecture"),
        (lambda d: d.update(architecture=None), r"give a model to load into: trellis\.load"),
        (lambda d: d["architecture"].update(name="os.system"), "unknown architecture"),
        (lambda d: d["architecture"].pop("arguments"), "expected the key 'arguments'"),
        (arguments(heads=4), "does not fit the model"),
        (arguments(heads=10**12), "does not fit the model"),
        (arguments(heads=10**30), "the described architecture is invalid"),
        (arguments(blocks=10**9), "other blocks"),
        (arguments(blocks="two"), "the described architecture is invalid"),
        (arguments(blocks=1e400), "expected a finite number"),
        (arguments(nodes=None), "nodes=None is not a whole number"),
        (arguments(combine={}), "combine={} is unknown|the described architecture is invalid"),
        (arguments(adjacency=[[1]]), "the described architecture is invalid"),
        (arguments(surprise=1), "unexpected keyword argument 'surprise'"),
        (
            lambda d: d["architecture"]["arguments"].pop("limited"),
            "the described architecture is invalid",
        ),
        (arguments(limited=False), "the model has no blocks.0.edges"),
    ],
)
def test_descriptions_that_are_none(folder: Path, change: Change, message: str) -> None:
    rewritten(folder, change)
    with pytest.raises(TrellisError, match=message):
        trellis.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("dense.weight"), "a mask for 'dense.weight' and no such parameter"),
        (lambda t: t.pop("blocks.0.edges"), "it has no blocks.0.edges"),
        (lambda t: t.update(more=torch.ones(1)), "the model has no more"),
        (lambda t: t.update({"masks:more": torch.ones(1, dtype=torch.uint8)}), "'more' and no"),
        (
            lambda t: t.update({"masks:dense.weight": torch.ones(3, dtype=torch.uint8)}),
            "the mask for 'dense.weight' is not 53 bytes",
        ),
        (
            lambda t: t.update({"masks:dense.weight": torch.zeros(53, dtype=torch.float32)}),
            "the mask for 'dense.weight' is not 53 bytes",
        ),
        (
            lambda t: t["masks:blocks.0.attention"][-1].fill_(255),
            "bits set after its last connection",
        ),
        (lambda t: t["dense.weight"].fill_(1), "is not 0 where its mask keeps nothing"),
        (lambda t: t["dense.weight"].fill_(torch.nan), "is not 0 where its mask keeps nothing"),
        (
            lambda t: t.update({"blocks.0.edges": t["blocks.0.edges"].long()}),
            "types differ: blocks.0.edges",
        ),
    ],
)
def test_tensors_that_do_not_fit(
    folder: Path, change: Callable[[dict[str, Tensor]], Any], message: str
) -> None:
    retensored(folder, change)
    with pytest.raises(TrellisError, match=message):
        trellis.load(folder)


def test_files_that_are_missing(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(TrellisError, match="there is no folder"):
        trellis.load(tmp_path / "gone")
    with pytest.raises(TrellisError, match=r"there is no model\.json"):
        trellis.load(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(TrellisError, match=r"there is no model\.safetensors"):
        trellis.load(folder)


def test_files_of_two_saves_are_no_model(tmp_path: Path, folder: Path) -> None:
    """As a crash between two moves would leave them, or a stray copy."""
    trellis.save(gcn(7, **OPTIONS["limit"]), tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").replace(folder / "model.safetensors")
    with pytest.raises(TrellisError, match="damaged or belongs to another model"):
        trellis.load(folder)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a": NaN}', "null", "9" * 5000])
def test_json_that_is_none(folder: Path, text: str) -> None:
    (folder / "model.json").write_text(text)
    with pytest.raises(TrellisError, match=r"model\.json"):
        trellis.load(folder)


def test_pickles_are_never_loaded(folder: Path) -> None:
    torch.save(nn.Linear(2, 1).state_dict(), folder / "model.safetensors")
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    rewritten(folder, lambda found: found.update(tensors=digest))
    with pytest.raises(TrellisError, match="never loaded"):
        trellis.load(folder)


@settings(max_examples=60)
@given(data=st.data())
def test_any_flipped_byte_is_told(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """In the tensors always; in the JSON it may be harmless, but is never a traceback."""
    folder = tmp_path_factory.mktemp("f")
    trellis.save(gcn(0, heads=1, filters=1), folder, notes={"a": 1})
    file = data.draw(st.sampled_from(["model.safetensors", "model.json"]))
    content = bytearray((folder / file).read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    (folder / file).write_bytes(content)
    if file == "model.safetensors":
        with pytest.raises(TrellisError):
            trellis.load(folder)
    else:
        try:
            trellis.load(folder)
        except TrellisError as error:
            assert "\n" not in str(error)


def test_a_model_that_does_not_fit_is_left_as_it_was(folder: Path) -> None:
    model = gcn(5, heads=2, **OPTIONS["limit"])
    masks = trellis.prune(model, torch.zeros(1, NODES, CHANNELS, dtype=torch.float64), sparsity=0.3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(TrellisError, match=r"does not fit the model: shapes differ: blocks\.0"):
        trellis.load(folder, into=model)
    assert trellis.masks_of(model) == masks
    assert all(torch.equal(tensor, before[n]) for n, tensor in model.state_dict().items())
