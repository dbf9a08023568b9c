"""A byte of any of our files is flipped: the file is refused, or what is read is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import trellis
from trellis.deploy.format import read, to_bytes
from trellis.errors import TrellisError
from trellis.files import DIGEST, write_tensors
from trellis.masks.masks import HEADER
from trellis.paper.pruning import read_network
from trellis.saving.model import read_tensors, write_weights

X = torch.zeros(1, 4)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def masks(path: Path) -> Callable[[], Any]:
    trellis.prune(network(), X, sparsity=0.5).save(path)

    def found() -> Any:
        loaded = trellis.Masks.load(path)
        return [mask.tolist() for mask in loaded.values()], list(loaded), loaded.budget

    return found


def weights(path: Path) -> Callable[[], Any]:
    write_weights(path, network().state_dict())
    return lambda: {name: t.tolist() for name, t in read_tensors(path)[0].items()}


def dense(path: Path) -> Callable[[], Any]:
    stack = {"w": torch.randn(3, 4, 5)}
    write_tensors(path, stack)
    return lambda: read_network(path, 1, {"w": (4, 5)})["w"].tolist()


def sparse(path: Path) -> Callable[[], Any]:
    trellis.export_c(network(), X, path.parent / "c")
    path.write_bytes((path.parent / "c" / "model.trellis").read_bytes())
    return lambda: to_bytes(read(path))


def model(path: Path) -> Callable[[], Any]:
    folder = path.parent / "m"
    trellis.save(network(), folder)
    path.symlink_to(folder / "model.safetensors")
    return lambda: [p.tolist() for p in trellis.load(folder, into=network()).parameters()]


@pytest.mark.parametrize("kind", [masks, weights, dense, sparse, model])
def test_a_flipped_byte_changes_nothing_unseen(
    tmp_path: Path, kind: Callable[[Path], Callable[[], Any]]
) -> None:
    path = tmp_path / "file"
    reader = kind(path)
    expected, content, refused = reader(), path.read_bytes(), 0
    for place in range(0, len(content), max(1, len(content) // 150)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert reader() == expected, place  # it was the name of the digest, say
        except TrellisError:
            refused += 1
    assert refused > 100


def test_files_of_older_releases_have_no_digest_and_still_open(tmp_path: Path) -> None:
    """Weights and masks, which may also come from elsewhere."""
    path = tmp_path / "w.safetensors"
    state: dict[str, Tensor] = network().state_dict()
    safetensors.torch.save_file(state, path, {"format": "pt"})
    assert torch.equal(read_tensors(path)[0]["0.weight"], state["0.weight"])
    made = trellis.prune(network(), X, sparsity=0.5)
    made.save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = file.metadata()[HEADER]
    cut = header[: header.index(', "digest"')] + "}"
    safetensors.torch.save_file(tensors, path, {HEADER: cut})
    assert trellis.Masks.load(path) == made


def test_the_same_tensors_make_the_same_bytes(tmp_path: Path) -> None:
    tensors, told = {"b": torch.ones(3), "a": torch.zeros(2)}, {"z": "1", "y": "2", "x": "3"}
    write_tensors(tmp_path / "one", tensors, told)
    write_tensors(tmp_path / "two", tensors, dict(reversed(told.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with safetensors.safe_open(tmp_path / "one", framework="pt") as file:
        assert file.metadata().keys() == {*told, DIGEST}


def test_a_pruners_state_is_told_too() -> None:
    def pruner() -> trellis.Pruner:
        schedule = trellis.Schedule("cubic", end=4)
        return trellis.Pruner(network(), X, sparsity=0.5, schedule=schedule)

    begun = pruner()
    for _ in range(6):
        begun.step()
    state = begun.state_dict()
    pruner().load_state_dict(state)
    flat = state["masks"]["0.weight"].view(-1)
    kept, gone = int(flat.nonzero()[0]), int((~flat).nonzero()[0])
    flat[kept], flat[gone] = False, True  # as many as before
    with pytest.raises(TrellisError, match="damaged"):
        pruner().load_state_dict(state)
