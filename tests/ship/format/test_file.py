"""``.trellis`` files: what is written is read; what is damaged or dishonest is refused, by both
readers, Python's and C's."""

from __future__ import annotations

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
from tests.ship.networks import NETWORKS, gcn, paper
from tests.ship.tools import tool
from trellis.errors import TrellisError
from trellis.ship.format import read_bytes, to_bytes
from trellis.ship.runtime.library import library
from trellis.ship.tables import interpreted, tables
from trellis.ship.tables.quantise import stored

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
        assert "is no sound .trellis file" in str(error)
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
        for name in FIELDS:
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
    with pytest.raises(TrellisError, match=r"no sound \.trellis file"):
        trellis.Runtime(path)


def test_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrellisError, match="cannot read"):
        trellis.Runtime(tmp_path / "none.trellis")


def test_a_later_version_is_told(small: bytes) -> None:
    head = small[:8] + struct.pack("<I", 2) + small[12:40]
    with pytest.raises(TrellisError, match="version 2"):
        read_bytes(head + struct.pack("<I", zlib.crc32(head)) + small[44:])


def test_outputs_may_be_inputs_or_constants() -> None:
    class Passes(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.flip(1), torch.ones(1, 2) + 0 * x[:, :2]

    found = read_bytes(to_bytes(tables(Passes(), torch.zeros(1, 3))))
    assert interpreted(found, np.array([[1, 2, 3]], np.float32)).tolist() == [[3, 2, 1, 1, 1]]
