"""A training that was stopped ends as one that was not."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from tests.training.killed import Killed, kill_after
from tests.training.networks import gcn, recordings, some_masks
from trellis.errors import TrellisError
from trellis.files import digest, write_tensors
from trellis.training import (
    Recipe,
    Training,
    checkpoint,
    forward_of,
    read_checkpoint,
    recipe_named,
    remove_checkpoint,
    run,
    stack,
    write_checkpoint,
)

RECIPES = {
    "speed": recipe_named("paper", epochs=9, rate=0.01),
    "cosine": recipe_named("default", epochs=9, tune_epochs=8, rate=0.01, decay=0.01),
    "speed in batches": recipe_named("paper", epochs=9, rate=0.01, batch=10, noise=0.1),
    "cosine in batches": recipe_named("default", epochs=9, rate=0.01, batch=10),
}


def training(recipe: Recipe, *, masked: bool = False, **changes: Any) -> Training:
    models = [gcn(seed).float() for seed in (0, 1)]
    x, y = recordings(30)
    masks = None
    if masked:
        parts = [some_masks(seed, models[0]) for seed in (0, 1)]
        masks = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    given: dict[str, Any] = {"seeds": (0, 1), "masks": masks} | changes
    x = given.pop("x", x.float())
    return Training(forward_of(models[0]), stack(models), x, y, recipe, **given)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(tensor.nan_to_num(-1), other[name].nan_to_num(-1))
        for name, tensor in one.items()
    )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", RECIPES)
def test_resumed_is_uninterrupted_bit_for_bit(tmp_path: Path, name: str, masked: bool) -> None:
    whole = training(RECIPES[name], masked=masked)
    run(whole)
    path = tmp_path / "checkpoint"
    # Killed three times; the checkpoint on disk is then up to two epochs old.
    for epochs in (2, 5, 7):
        with pytest.raises(Killed):
            run(
                training(RECIPES[name], masked=masked),
                path,
                every=0 if epochs != 5 else 1e9,
                watch=kill_after(epochs),
            )
    resumed = training(RECIPES[name], masked=masked)
    run(resumed, path, every=0)
    assert resumed.epochs_done == 9
    assert same(resumed.tensors(), whole.tensors())
    assert os.listdir(tmp_path) == ["checkpoint"]


@pytest.mark.parametrize("name", RECIPES)
def test_it_stops_where_it_is_told_and_another_may_go_on_from_there(
    tmp_path: Path, name: str
) -> None:
    """By `follow`."""
    recipe, path = RECIPES[name], tmp_path / "checkpoint"
    whole, first = (training(recipe) for _ in range(2))
    run(whole)
    run(first, path, until=4)
    assert (first.epochs_done, first.done) == (4, False)
    again = training(recipe)
    run(again, path, until=4)  # nothing is left to do
    assert again.epochs_done == 4 and same(again.tensors(), first.tensors())
    with pytest.raises(TrellisError, match=r"at most 3 epochs, got one of 4; remove"):
        run(training(recipe), path, until=3)
    run(first, until=99)
    assert first.done and same(first.tensors(), whole.tensors())
    other = training(recipe)
    other.follow(again, lambda stack: stack)
    run(other)
    assert same(other.tensors(), whole.tensors())


def test_recordings_are_looked_at_once_however_many_checkpoints_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = training(RECIPES["cosine"], masked=True)
    hashed: list[list[str]] = []

    def counted(tensors: Mapping[str, Tensor]) -> str:
        hashed.append(sorted(tensors))
        return digest(tensors)

    monkeypatch.setattr(checkpoint, "digest", counted)
    with pytest.raises(Killed):
        run(begun, tmp_path / "c", every=0, watch=kill_after(6))
    assert len(hashed) == 2 and ["x", "y"] in hashed
    run(training(RECIPES["cosine"], masked=True), tmp_path / "c", every=0)
    assert len(hashed) == 4


def test_only_drafts_are_removed_with_a_checkpoint(tmp_path: Path) -> None:
    for name in ("c[1]", ".c[1].0badcafe", ".c1.0badcafe", ".c[1].swp"):
        (tmp_path / name).touch()
    remove_checkpoint(tmp_path / "c[1]")
    assert sorted(os.listdir(tmp_path)) == [".c1.0badcafe", ".c[1].swp"]


def test_a_finished_checkpoint_is_the_result(tmp_path: Path) -> None:
    """Killed between the last epoch and the saving of the model, nothing is trained again."""
    whole = training(RECIPES["cosine"])
    run(whole, tmp_path / "c")
    again = training(RECIPES["cosine"])
    run(again, tmp_path / "c", watch=lambda _: pytest.fail("trained again"))
    assert same(again.tensors(), whole.tensors())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": (0, 2)}, r"seeds was \[0, 1\] and is \[0, 2\]"),
        ({"tune": True}, "epochs was 9 and is 8; rate was"),
        ({"masked": True}, "masks was"),
        ({"x": recordings(30, seed=1)[0].float()}, "recordings was"),
        ({"recipe": dataclasses.replace(RECIPES["cosine"], decay=0.5)}, "recipe.decay was 0.01"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused_with_what_differs(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    begun = training(RECIPES["cosine"])
    begun.epoch()
    write_checkpoint(tmp_path / "c", begun)
    other = training(changes.pop("recipe", RECIPES["cosine"]), **changes)
    before = {name: tensor.clone() for name, tensor in other.tensors().items()}
    with pytest.raises(TrellisError, match=message):
        read_checkpoint(tmp_path / "c", other)
    assert same(before, other.tensors()) and other.epochs_done == 0


def test_what_the_caller_says_must_be_the_same_too(tmp_path: Path) -> None:
    begun = training(RECIPES["cosine"])
    write_checkpoint(tmp_path / "c", begun, {"source": "hands45"})
    with pytest.raises(TrellisError, match="source was 'hands45' and is 'sbu:x'"):
        read_checkpoint(tmp_path / "c", training(RECIPES["cosine"]), {"source": "sbu:x"})


def test_damaged_checkpoints_are_one_error(tmp_path: Path) -> None:
    begun = training(RECIPES["speed"])
    path = tmp_path / "c"
    write_checkpoint(path, begun)
    content = path.read_bytes()
    for cut in (0, 5, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(TrellisError, match="not a sound checkpoint"):
            read_checkpoint(path, begun)
    safetensors.torch.save_file({"a": torch.ones(1)}, path)
    with pytest.raises(TrellisError, match="it has no 'trellis"):
        read_checkpoint(path, begun)
    for old, new in (
        (b'"version\\": 1', b'"version\\": 7'),
        (b'"epochs_done\\": 0', b'"epochs_done\\": -'),
        (b"adam.count", b"adam.cxunt"),
        (b'"adam.count":{"dtype":"F64"', b'"adam.count":{"dtype":"I64"'),
    ):
        assert old in content
        path.write_bytes(content.replace(old, new))
        with pytest.raises(TrellisError, match="checkpoint"):
            read_checkpoint(path, begun)


def test_every_flipped_byte_is_told(tmp_path: Path) -> None:
    """Before there was a digest, most damage to numbers was trained on."""
    path = tmp_path / "c"
    begun = training(RECIPES["speed"])
    run(begun, path, until=2)
    content = path.read_bytes()
    stood = {name: tensor.clone() for name, tensor in begun.tensors().items()}
    size = int.from_bytes(content[:8], "little")
    for place in [*range(0, 8 + size, 13), *range(8 + size, len(content), len(content) // 60)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(TrellisError, match="checkpoint"):
            read_checkpoint(path, begun)
        assert same(stood, begun.tensors()) and begun.epochs_done == 2
    path.write_bytes(content)
    read_checkpoint(path, begun)


def test_a_checkpoint_without_a_digest_cannot_be_trusted(tmp_path: Path) -> None:
    path = tmp_path / "c"
    write_checkpoint(path, training(RECIPES["cosine"]))
    with safetensors.safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del metadata["trellis.digest"]
    safetensors.torch.save_file(tensors, path, metadata)
    with pytest.raises(TrellisError, match=r"no digest.*Remove it to train from the start"):
        read_checkpoint(path, training(RECIPES["cosine"]))


def test_its_time_adds_up_over_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by one second each time it is looked at: what was done before the last
    checkpoint counts, what was lost with the kill does not."""
    clock = itertools.count()
    monkeypatch.setattr("trellis.training.checkpoint.time.monotonic", lambda: float(next(clock)))
    path = tmp_path / "checkpoint"
    whole = run(training(RECIPES["cosine"]), path, every=0)
    assert whole > 9 * 2  # epochs, and how often the clock is looked at in each, at least
    assert run(training(RECIPES["cosine"]), path, every=0) == pytest.approx(whole, abs=2)  # done
    path.unlink()
    with pytest.raises(Killed):
        run(training(RECIPES["cosine"]), path, every=0, watch=kill_after(4))
    assert run(training(RECIPES["cosine"]), path, every=0) == pytest.approx(whole, abs=2)


def test_a_checkpoint_that_tells_no_time_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_checkpoint(path, training(RECIPES["cosine"]))
    with safetensors.safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["trellis.checkpoint"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for seconds in (None, 0):
        header["seconds"] = seconds
        write_tensors(path, tensors, {"trellis.checkpoint": json.dumps(header)})
        assert run(training(RECIPES["cosine"]), path, every=1e9) >= 0
        path.unlink()
