"""Models of the Hub, as folders: saved, loaded, evaluated, with a card; nothing is sent."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import trellis
from trellis.errors import TrellisError
from trellis.skeleton import Recognizer, load_dataset

huggingface_hub: Any = pytest.importorskip("huggingface_hub")
from trellis.integrations.hub import PrunedModel, download  # noqa: E402

X = torch.zeros(1, 8)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def test_a_folder_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    model = network()
    masks = trellis.prune(model, X, sparsity=0.9)
    made = PrunedModel(
        model, example_inputs=X, results={"accuracy": 0.9312}, command="python prune.py",
        notes={"set": "toy"},
    )  # fmt: skip
    made.save_pretrained(tmp_path / "out")
    again = PrunedModel.from_pretrained(tmp_path / "out", into=network())
    assert trellis.masks_of(again.model) == masks and again.notes == {"set": "toy"}
    x = torch.randn(3, 8)
    assert torch.equal(again.model(x), model(x))
    assert trellis.masks_of(trellis.load(tmp_path / "out", into=network())) == masks
    network().load_state_dict(load_file(tmp_path / "out" / "model.safetensors"), strict=False)

    card = huggingface_hub.ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.library_name == "trellis" and "pruning" in card.data.tags
    row = "| `0.weight` | 16x8 | 128 |"
    for words in ("16 of 160 connections", "0.9312", "python prune.py", row):
        assert words in card.text
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config == {"library_name": "trellis", "model_type": "Sequential"}
    again.save_pretrained(tmp_path / "out")  # a card that somebody may have edited stays
    assert huggingface_hub.ModelCard.load(tmp_path / "out" / "README.md").text == card.text


def test_a_compacted_model_needs_no_class(tmp_path: Path) -> None:
    model = network()
    trellis.prune(model, X, sparsity=0.9)
    small = trellis.compact(model, X)
    trellis.save(small, tmp_path / "small")  # also without the mixin
    found = PrunedModel.from_pretrained(tmp_path / "small")
    x = torch.randn(3, 8)
    assert torch.equal(found.model(x), small(x))
    assert "are live" in found.generate_model_card().text


def test_a_recogniser_keeps_what_it_needs_to_name_actions(tmp_path: Path) -> None:
    hands = load_dataset("hands45")
    fresh = Recognizer.fresh(hands, hands.folds[0], heads=2, filters=4)
    trellis.prune(fresh.model, fresh.model.example(), sparsity=0.5)
    fresh.save(tmp_path / "here")
    PrunedModel.from_pretrained(tmp_path / "here").save_pretrained(tmp_path / "there")
    again, frames = Recognizer.load(tmp_path / "there"), [hands.sequences[0]]
    assert (again.probabilities(frames) == fresh.probabilities(frames)).all()
    card = huggingface_hub.ModelCard.load(tmp_path / "there" / "README.md").text
    assert "are live" in card and "trellis evaluate hf:" in card and "into" not in card


def test_what_is_pushed_holds_no_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, bytes] = {}

    class Api:
        def __init__(self, **_: Any) -> None: ...

        def create_repo(self, repo_id: str, **_: Any) -> Any:
            return type("Repo", (), {"repo_id": repo_id})

        def upload_folder(self, folder_path: Path, repo_id: str, **_: Any) -> str:
            sent.update({p.name: p.read_bytes() for p in Path(folder_path).iterdir()})
            return f"https://hub/{repo_id}"

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Api)
    assert PrunedModel(network()).push_to_hub("me/pruned") == "https://hub/me/pruned"
    assert set(sent) == {"README.md", "config.json", "model.json", "model.safetensors"}

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a pickle was opened")

    monkeypatch.setattr(pickle, "Unpickler", refused)
    folder = tmp_path / "got"
    folder.mkdir()
    for name, content in sent.items():
        (folder / name).write_bytes(content)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps("never read"))

    def fetched(name: str, **options: Any) -> str:
        assert name == "me/pruned" and options["revision"] == "v1"
        assert options["allow_patterns"] == ["model.safetensors", "model.json"]
        return str(folder)

    monkeypatch.setattr("trellis.integrations.hub.snapshot_download", fetched)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert download("me/pruned", revision="v1") == folder
    PrunedModel._from_pretrained(model_id="me/pruned", revision="v1", into=network())


def test_what_cannot_be_had_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(TrellisError, match="there/is/none"):
        download("there/is/none")
    with pytest.raises(TrellisError, match="got 'inot'"):
        PrunedModel.from_pretrained(tmp_path, inot=network())
