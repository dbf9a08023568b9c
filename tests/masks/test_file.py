"""Masks files: saved equals loaded, and anything damaged is named, not believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tests.masks.models import TinyGPT, mlp, random_masks
from trellis import Masks
from trellis.errors import TrellisError
from trellis.masks import weights_hash
from trellis.masks.masks import HEADER, pack, unpack

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@given(shapes, st.randoms(use_true_random=False))
def test_unpack_inverts_pack(shape: tuple[int, ...], random: Any) -> None:
    mask = torch.zeros(shape, dtype=torch.bool)
    mask.view(-1).copy_(torch.tensor([random.random() < 0.5 for _ in range(mask.numel())]))
    packed = pack(mask)
    assert packed.nbytes == (mask.numel() + 7) // 8
    # The definition: connection i is bit i % 8 of byte i // 8.
    flat = mask.flatten().tolist()
    assert [bool(packed[i // 8] >> (i % 8) & 1) for i in range(len(flat))] == flat
    assert torch.equal(unpack(packed, shape), mask) and unpack(packed, shape).shape == shape


def test_pack_does_not_depend_on_memory_layout() -> None:
    mask = torch.rand(3, 5) < 0.5
    assert pack(mask.T).tolist() == pack(mask.T.contiguous()).tolist()


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), shapes, max_size=4),
    st.integers(0, 2**40),
    st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers() | st.text() | st.none()),
)
def test_saved_equals_loaded(
    tmp_path_factory: pytest.TempPathFactory,
    named: dict[str, tuple[int, ...]],
    budget: int,
    provenance: dict[str, Any],
) -> None:
    path = tmp_path_factory.mktemp("masks") / "a.safetensors"
    masks = Masks(
        {name: torch.rand(shape) < 0.5 for name, shape in named.items()},
        budget=budget,
        provenance=provenance,
    )
    masks.save(path)
    loaded = Masks.load(path)
    assert loaded == masks and list(loaded) == list(masks)
    assert (loaded.budget, loaded.kept, loaded.provenance) == (budget, masks.kept, provenance)


def test_saving_twice_gives_the_same_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    masks = random_masks(mlp())
    for name in ("a", "b", "b"):
        masks.save(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_tied_parameter_is_stored_once_and_masks_a_fresh_model(tmp_path: Path) -> None:
    model, fresh = TinyGPT(), TinyGPT()
    fresh.load_state_dict(model.state_dict())
    masks = random_masks(model)
    masks.apply(model)
    masks.save(tmp_path / "m", model)
    with safe_open(tmp_path / "m", framework="numpy") as file:
        assert sorted(file.keys()) == ["embed.weight", "hidden.weight"]
    loaded = Masks.load(str(tmp_path / "m"))
    loaded.apply(fresh)
    tokens = torch.tensor([[1, 2, 5]])
    assert torch.equal(fresh(tokens), model(tokens))
    assert loaded.provenance["weights"] == weights_hash(model) == weights_hash(fresh)


def test_a_failed_write_names_the_path_and_keeps_the_old_file(tmp_path: Path) -> None:
    masks = random_masks(mlp())
    with pytest.raises(TrellisError, match=r"cannot write '.*missing/m'"):
        masks.save(tmp_path / "missing" / "m")
    (tmp_path / "folder").mkdir()
    with pytest.raises(TrellisError, match="cannot write"):
        masks.save(tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def sound() -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors and the header of a small sound file."""
    header = {"version": 1, "budget": 3, "shapes": {"w": [2, 5]}, "provenance": {}}
    return {"w": np.array([0b101, 0b01], dtype=np.uint8)}, header


def write(path: Path, tensors: dict[str, Any], header: Any) -> None:
    text = header if isinstance(header, str) else json.dumps(header)
    path.write_bytes(safetensors.numpy.save(tensors, metadata={HEADER: text}))


def test_the_sound_file_loads(tmp_path: Path) -> None:
    write(tmp_path / "m", *sound())
    loaded = Masks.load(tmp_path / "m")
    assert loaded["w"].int().tolist() == [[1, 0, 1, 0, 0], [0, 0, 0, 1, 0]]


HEADERS: list[tuple[dict[str, Any], str]] = [
    ({"version": 2}, "version 2; this release of Trellis reads version 1"),
    ({"version": "1"}, "version '1'"),
    ({"budget": -1}, r"int >= 0 at \$\.budget, got -1"),
    ({"budget": True}, r"int at \$\.budget, got True"),
    ({"budget": 1.5}, r"int at \$\.budget, got 1\.5"),
    ({"budget": None}, r"int at \$\.budget, got None"),
    ({"provenance": []}, r"object at \$\.provenance"),
    ({"shapes": []}, r"object at \$\.shapes"),
    ({"shapes": {}}, "do not name the same parameters"),
    ({"shapes": {"w": [2, 5], "v": [1]}}, "do not name the same parameters"),
    ({"shapes": {"w": 10}}, r"array at \$\.shapes"),
    ({"shapes": {"w": [-2, -5]}}, r"int >= 0 at \$\.shapes"),
    ({"shapes": {"w": [2.0, 5]}}, r"int at \$\.shapes"),
    ({"shapes": {"w": [1] * 65}}, r"array of length <= 64 at \$\.shapes"),
    ({"shapes": {"w": [2, 9]}}, r"should be 3 bytes of U8 and is U8 of shape \[2\]"),
    ({"shapes": {"w": [2**40, 2**40]}}, "should be .* bytes"),
    ({"shapes": {"w": [2**200]}}, r"int <= \d+ at \$\.shapes"),
    ({"shapes": {"w": [3, 3]}}, "bits set after its last connection"),
]


@pytest.mark.parametrize(("change", "message"), HEADERS)
def test_a_header_that_does_not_fit(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    tensors, header = sound()
    tensors["w"][1] = 0b10  # bit 9: within 2 x 5, beyond 3 x 3
    write(tmp_path / "m", tensors, header | change)
    with pytest.raises(TrellisError, match=message) as error:
        Masks.load(tmp_path / "m")
    assert str(tmp_path / "m") in str(error.value)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (np.zeros(2, dtype=np.int8), "is I8"),
        (np.zeros(2, dtype=np.bool_), "is BOOL"),
        (np.zeros((1, 2), dtype=np.uint8), r"of shape \[1, 2\]"),
        (np.zeros(3, dtype=np.uint8), r"of shape \[3\]"),
    ],
)
def test_a_tensor_that_does_not_fit(tmp_path: Path, tensor: Any, message: str) -> None:
    write(tmp_path / "m", {"w": tensor}, sound()[1])
    with pytest.raises(TrellisError, match=message):
        Masks.load(tmp_path / "m")


def test_an_empty_mask_of_impossible_size(tmp_path: Path) -> None:
    header = sound()[1] | {"shapes": {"w": [2**62, 2**62, 0]}}
    write(tmp_path / "m", {"w": np.zeros(0, dtype=np.uint8)}, header)
    with pytest.raises(TrellisError, match="'w' has the shape"):
        Masks.load(tmp_path / "m")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "[" * 100_000])
def test_a_header_that_is_no_header(tmp_path: Path, text: str) -> None:
    write(tmp_path / "m", sound()[0], text)
    with pytest.raises(TrellisError, match="header"):
        Masks.load(tmp_path / "m")


def test_other_safetensors_files_missing_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(safetensors.numpy.save({"w": np.zeros(3)}))
    with pytest.raises(TrellisError, match="not a masks file"):
        Masks.load(tmp_path / "other")
    with pytest.raises(TrellisError, match=r"masks file .* does not exist"):
        Masks.load(tmp_path / "missing")
    with pytest.raises(TrellisError, match=r"cannot be read|not a whole safetensors file"):
        Masks.load(tmp_path)


@given(st.data())
def test_no_damage_gets_through(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Cut anywhere, a file is refused; with any byte changed, refused or a sound mapping."""
    path = tmp_path_factory.mktemp("masks") / "m"
    write(path, *sound())
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content) - 1))
    path.write_bytes(content[:cut])
    with pytest.raises(TrellisError):
        Masks.load(path)
    place, byte = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 255))
    path.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
    try:
        loaded = Masks.load(path)
    except TrellisError:
        return
    assert all(mask.dtype == torch.bool for mask in loaded.values())


def test_the_hash_tells_weights_and_names_apart_and_nothing_else() -> None:
    a = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    b = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    b.load_state_dict(a.state_dict())
    assert weights_hash(a) == weights_hash(b)
    assert weights_hash(a) != weights_hash(nn.Sequential(*a, nn.Linear(3, 3)))
    assert weights_hash(a) != weights_hash(nn.ModuleDict({"x": a[0], "y": a[1]}))
    masks = random_masks(a)
    assert weights_hash(masks.apply(a)) != weights_hash(b)
    assert weights_hash(a) == weights_hash(masks.bake(b))
    with torch.no_grad():
        b.get_parameter("1.bias")[0] += 1
    assert weights_hash(a) != weights_hash(b)


def test_the_hash_is_the_same_in_chunks_of_any_type() -> None:
    # 2 ** 24 bytes a chunk: more than one, the last one short.
    layer = nn.Linear(1, 2**22 + 5, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(layer.weight.numel())[:, None])
    first = weights_hash(layer)
    threads = torch.get_num_threads()
    assert weights_hash(layer) == first and torch.get_num_threads() == threads
    with torch.no_grad():
        layer.weight[-1] += 1
    assert weights_hash(layer) != first
    assert weights_hash(layer.bfloat16()) != first
    weights_hash(weight_norm(nn.Linear(2, 2)))
