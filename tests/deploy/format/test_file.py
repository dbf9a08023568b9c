"""``.trellis`` files: what is written is read; what is damaged or dishonest is refused, by both
readers, Python's and C's."""

from __future__ import annotations

import dataclasses
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

import trellis
from tests.deploy.networks import NETWORKS, gcn, paper
from tests.deploy.random_cnns import random_cnn
from tests.deploy.tools import tool
from trellis.deploy.format import read_bytes, to_bytes
from trellis.deploy.native_library import library
from trellis.deploy.tables import interpreted, tables
from trellis.deploy.tables.form import Activation, Step, Tables
from trellis.deploy.tables.quantize import stored
from trellis.errors import TrellisError

LOOP_FIELDS = (
    "shape", "out", "stride", "window", "reach", "sources", "shared", "fan", "taps", "weights",
    "scale", "bias", "extras", "border",
)  # fmt: skip
FIELDS = ("fan", "count", "bias", "scale", "terms", "others", "weights", "offsets", "outs", "adds")


def sealed(data: bytes, body: bytes) -> bytes:
    """The file with other tables, all checksums put right again."""
    (meta,) = struct.unpack_from("<I", data, 20)
    head = data[:32] + struct.pack("<II", len(body), zlib.crc32(body))
    return head + struct.pack("<I", zlib.crc32(head)) + data[44 : 44 + meta] + body


def tables_of(data: bytes) -> bytes:
    (meta,) = struct.unpack_from("<I", data, 20)
    return data[44 + meta :]


def accepted_by_c(data: bytes) -> bool:
    import ctypes

    why = ctypes.create_string_buffer(200)
    model = library().trellis_open(data, len(data), why, len(why))
    if model:
        library().trellis_close(model)
    else:
        assert why.value
    return bool(model)


def accepted_by_python(data: bytes) -> bool:
    try:
        read_bytes(data)
    except TrellisError as error:
        assert "is damaged or not a .trellis file" in str(error)
        return False
    return True


@pytest.mark.parametrize("network", NETWORKS)
def test_there_and_back(network: str) -> None:
    found = tables(*NETWORKS[network]())
    again = read_bytes(to_bytes(found))
    assert (again.inputs, again.outputs, again.size) == (found.inputs, found.outputs, found.size)
    np.testing.assert_array_equal(again.results, found.results)
    for mine, other in zip(again.steps, found.steps, strict=True):
        assert (mine.kind, mine.act.name) == (other.kind, other.act.name)
        for name in FIELDS if isinstance(mine, Step) else LOOP_FIELDS:
            np.testing.assert_array_equal(getattr(mine, name), getattr(other, name))


def test_sizes() -> None:
    """Of the paper's network: at most 60 and 13 KB, attention pruned too."""
    for sparsity, most in ((0.99, 60_000), (0.999, 13_000)):
        assert len(to_bytes(stored(tables(*paper(sparsity)), "int8"))) <= most


@pytest.fixture(scope="module")
def small() -> bytes:
    torch.manual_seed(0)
    return to_bytes(tables(*gcn(0.8)))


@pytest.fixture(scope="module")
def kernel() -> None:
    tool("gcc", "clang", "cc")
    library()


def test_every_cut_is_refused(small: bytes, kernel: None) -> None:
    for length in range(len(small)):
        assert not accepted_by_python(small[:length]) and not accepted_by_c(small[:length])
    assert not accepted_by_python(small + b"\0") and not accepted_by_c(small + b"\0")


def test_every_flipped_bit_is_refused(small: bytes, kernel: None) -> None:
    for place in range(0, len(small), 3):
        broken = bytearray(small)
        broken[place] ^= 1 << place % 8
        assert not accepted_by_c(bytes(broken)) and not accepted_by_python(bytes(broken))


def test_both_readers_agree_on_dishonest_files(small: bytes, kernel: None) -> None:
    """Checksums put right, tables wrong: refused by both, or sound by both."""
    body, outcomes = tables_of(small), {True: 0, False: 0}
    generator = np.random.default_rng(0)
    for _ in range(500):
        broken = bytearray(body)
        for _ in range(int(generator.integers(1, 4))):
            place = int(generator.integers(len(broken)))
            broken[place] = int(generator.integers(256))
        data = sealed(small, bytes(broken))
        outcome = accepted_by_python(data)
        assert accepted_by_c(data) == outcome
        outcomes[outcome] += 1
    assert min(outcomes.values()) > 20  # both happened, so that agreement says something


# Parts of numbers that are infinite, NaN, the largest, or counts that overflow.
PIECES = (
    b"\xff\xff\xff\xff", b"\0\0\x80\x7f", b"\0\0\xc0\x7f", b"\x80\x7f", b"\x7f\x7f", b"\0\x7c",
    b"\xff\xff\x7f\x7f", b"\0\0\0\0", b"\1\0\0\0", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\x80\xff",
)  # fmt: skip


def mutated(body: bytes, rng: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(changed))
        piece = rng.choice([*PIECES, rng.randbytes(1), rng.randbytes(1), rng.randbytes(1)])
        rest = place + len(piece) * (rng.random() < 0.9)  # else it is put in between
        changed[place : rest + (rng.random() < 0.05)] = piece
    return bytes(changed)


@pytest.mark.parametrize("values", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("network", ["cnn", "gcn", "transformer"])
def test_both_readers_agree_on_mutations(network: str, values: str, kernel: None) -> None:
    torch.manual_seed(0)
    data, rng = to_bytes(stored(tables(*NETWORKS[network]()), values)), random.Random(0)
    outcomes = {True: 0, False: 0}
    for _ in range(60 if len(data) > 10_000 else 200):
        broken = sealed(data, mutated(tables_of(data), rng))
        outcome = accepted_by_python(broken)
        assert accepted_by_c(broken) == outcome
        outcomes[outcome] += 1
    assert min(outcomes.values()) > 1


def one_step(**changes: object) -> bytes:
    """Two sums of one term each, and one of none."""
    step = Step(
        "sum", Activation("none"), np.array([0, 1, 1]), np.array([1, 1, 1]),
        np.ones(3, np.float32), np.ones(3, np.float32), np.zeros(2, np.int64),
        np.zeros(0, np.int64), np.array([127, -127], np.int8), np.array([0, 0, 1]),
        np.array([2, 3, 4]),
    )  # fmt: skip
    step = dataclasses.replace(step, **changes)  # type: ignore[arg-type]
    return to_bytes(Tables(((2,),), ((3,),), 5, (step,), np.array([2, 3, 4]), "int8"))


@pytest.mark.parametrize(
    "changes, sound",
    [
        ({}, True),
        ({"scale": np.array([1, 2.0**120, 1], np.float32)}, True),
        ({"scale": np.array([1, 2.0**121, 1], np.float32)}, True),
        ({"scale": np.array([1, 2.0**122, 1], np.float32)}, False),
        ({"scale": np.array([2.0**127, 1, 1], np.float32)}, True),  # of no weight
        ({"scale": np.array([1, 1, np.inf], np.float32)}, False),
        ({"scale": np.array([1, 1, np.nan], np.float32)}, False),
        ({"scale": np.array([1, 2.0**-149, 1], np.float32) * 0}, True),
        ({"bias": np.array([1, np.inf, 1], np.float32)}, False),
        ({"offsets": np.array([4, 0, 1])}, True),
        ({"offsets": np.array([5, 0, 1])}, False),  # nothing is read there, and yet
        ({"act": Activation("none", np.nan)}, False),
    ],
)
def test_both_readers_agree_on_values_and_offsets(
    changes: dict[str, object], sound: bool, kernel: None
) -> None:
    data = one_step(**changes)
    assert (accepted_by_python(data), accepted_by_c(data)) == (sound, sound)


def test_values_of_another_kind_are_refused(tmp_path: Path, kernel: None) -> None:
    data = one_step()
    (length,) = struct.unpack_from("<I", data, 20)
    meta = data[44 : 44 + length].replace(b"int8", b"fp32")
    head = data[:20] + struct.pack("<II", len(meta), zlib.crc32(meta)) + data[28:40]
    path = tmp_path / "other.trellis"
    path.write_bytes(head + struct.pack("<I", zlib.crc32(head)) + meta + data[44 + length :])
    assert not accepted_by_python(path.read_bytes())
    with pytest.raises(TrellisError, match=r"damaged or not a \.trellis file"):
        trellis.Runtime(path)


def test_the_largest_weights_are_written_as_what_can_be_read(kernel: None) -> None:
    layer = nn.Linear(2, 2)
    for weight in (3.3e38, 3.4028234e38):
        nn.init.constant_(layer.weight, weight)
        found = tables(layer, torch.zeros(1, 2))
        for values in ("fp32", "fp16", "int8"):
            if values == "fp16" and weight > 3.4e38:  # it would be rounded up, to infinity
                with pytest.raises(TrellisError, match="too large"):
                    stored(found, values)
            else:
                data = to_bytes(stored(found, values))
                assert accepted_by_python(data) and accepted_by_c(data)


def test_sealed_is_what_it_seems(small: bytes) -> None:
    assert sealed(small, tables_of(small)) == small


@pytest.mark.parametrize("place, value", [(0, 2**31), (4, 0), (8, 2**31), (8, 2**25), (12, 2**30)])
def test_huge_counts_are_refused(small: bytes, kernel: None, place: int, value: int) -> None:
    """Inputs, outputs, size and steps that no memory holds."""
    body = bytearray(tables_of(small))
    struct.pack_into("<I", body, place, value)
    data = sealed(small, bytes(body))
    assert not accepted_by_python(data) and not accepted_by_c(data)


@given(st.binary(max_size=200))
@example(b"")
@example(b"TRELLIS\n")
def test_anything_else_is_refused(data: bytes) -> None:
    assert not accepted_by_python(data)


@pytest.mark.parametrize(
    "meta",
    [b"", b"[]", b"{}", b'{"values":"fp32"}', b'{"values":"fp32","inputs":[[0]],"outputs":[[1]]}',
     b'{"values":"fp32","inputs":[[7,12]],"outputs":[[5]],"classes":["one"]}',
     b'{"values":"fp32","inputs":[[7,12]],"outputs":[[5]],"recording":{"joints":["a"]}}',
     b'{"values":"fp32","inputs":[[7,13]],"outputs":[[5]]}', b"[" * 100_000],
)  # fmt: skip
def test_wrong_meta_is_refused(small: bytes, meta: bytes, tmp_path: Path) -> None:
    body = tables_of(small)
    head = small[:20] + struct.pack("<II", len(meta), zlib.crc32(meta)) + small[28:40]
    data = head + struct.pack("<I", zlib.crc32(head)) + meta + body
    assert not accepted_by_python(data)
    path = tmp_path / "wrong.trellis"
    path.write_bytes(data)
    with pytest.raises(TrellisError, match=r"damaged or not a \.trellis file"):
        trellis.Runtime(path)


def test_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrellisError, match="cannot read"):
        trellis.Runtime(tmp_path / "none.trellis")


def test_a_later_version_is_told(small: bytes) -> None:
    head = small[:8] + struct.pack("<I", 4) + small[12:40]
    with pytest.raises(TrellisError, match="version 4"):
        read_bytes(head + struct.pack("<I", zlib.crc32(head)) + small[44:])


def test_outputs_may_be_inputs_or_constants() -> None:
    class Passes(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.flip(1), torch.ones(1, 2) + 0 * x[:, :2]

    found = read_bytes(to_bytes(tables(Passes(), torch.zeros(1, 3))))
    assert interpreted(found, np.array([[1, 2, 3]], np.float32)).tolist() == [[3, 2, 1, 1, 1]]


def test_both_readers_agree_on_loops(kernel: None) -> None:
    """A thousand mutants of small CNNs: refused by both, or run by both without harm."""
    rng, outcomes = random.Random(1), {True: 0, False: 0}
    for seed in (1, 4, 5, 9, 12):
        data = to_bytes(stored(tables(*random_cnn(seed)), rng.choice(["fp32", "fp16", "int8"])))
        for _ in range(200):
            broken = sealed(data, mutated(tables_of(data), rng))
            outcome = accepted_by_python(broken)
            assert accepted_by_c(broken) == outcome
            outcomes[outcome] += 1
    assert min(outcomes.values()) > 20
