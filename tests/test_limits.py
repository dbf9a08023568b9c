"""What asks for absurdly much is refused before anything of that size is made or read."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trellis import skeleton
from trellis.deploy.format import read
from trellis.deploy.format.encoding import MOST_BYTES, decoded
from trellis.errors import TrellisError
from trellis.limits import LARGEST, LARGEST_TEXT, check_count
from trellis.paper import Settings
from trellis.skeleton import chunked
from trellis.training import recipe_named

ABSURD = 1_000_000_000


def packed(path: Path, declared: int | None = None, **headers: tuple[int, ...]) -> str:
    """An .npz of four recordings; a header may tell of a shape, and the directory of a size, that
    are not there."""
    given: dict[str, np.ndarray[Any, Any]] = {
        "frames": np.zeros((4, 5, 3), np.float32),
        "lengths": np.ones(4, np.int64),
        "labels": np.array([0, 0, 1, 1]),
    }
    with zipfile.ZipFile(path, "w") as file:
        for name, array in given.items():
            content = io.BytesIO()
            told = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
            np.lib.format.write_array_header_1_0(
                content, told | ({"shape": headers[name]} if name in headers else {})
            )
            file.writestr(f"{name}.npy", content.getvalue() + array.tobytes())
        if declared is not None:
            file.infolist()[0].file_size = declared
    return f"npz:{path}"


def test_the_files_of_these_tests_are_read(tmp_path: Path) -> None:
    assert len(skeleton.load_dataset(packed(tmp_path / "a.npz"))) == 4


@pytest.mark.parametrize(
    ("declared", "headers", "told"),
    [
        (LARGEST + 1, {}, "unpacked: expected at most 4,294,967,296 bytes, got"),
        (None, {"frames": (ABSURD, 5, 3)}, "expected at most the"),
        (None, {"labels": (ABSURD,)}, "expected at most the"),
        (None, {"frames": (-1, 5, 3)}, "expected at most the"),
        (LARGEST, {"frames": (1 << 28, 5, 3)}, "expected at most"),
        (LARGEST, {"lengths": (1 << 28,)}, "expected at most"),
    ],
)
def test_archives_that_unpack_to_more_than_memory(
    tmp_path: Path, declared: int | None, headers: dict[str, tuple[int, ...]], told: str
) -> None:
    with pytest.raises(TrellisError, match=told):
        skeleton.load_dataset(packed(tmp_path / "a.npz", declared, **headers))


@pytest.mark.parametrize(
    ("name", "size", "reader"),
    [
        ("wave/a.csv", LARGEST_TEXT + 1, lambda folder: skeleton.load_dataset(f"csv:{folder}")),
        ("model.trellis", MOST_BYTES + 1, lambda folder: read(folder / "model.trellis")),
    ],
)
def test_files_that_are_too_long_are_not_read(
    tmp_path: Path, name: str, size: int, reader: Callable[[Path], Any]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    with pytest.raises(TrellisError, match=f"expected at most {size - 1:,} bytes, got {size:,}"):
        reader(tmp_path)


def test_a_table_is_not_unpacked_to_count_it() -> None:
    with pytest.raises(TrellisError, match="bytes of unary"):
        decoded(bytes([0, 100, 0, 0, 0]) + bytes(100), 0, 3)


@pytest.mark.parametrize(
    "asked",
    [
        lambda: Settings("table2", "hands45", seeds=ABSURD),
        lambda: Settings("table2", "hands45", heads=ABSURD),
        lambda: Settings("table2", "hands45", blocks=ABSURD),
        lambda: Settings("table2", "hands45", stack=ABSURD),
        lambda: recipe_named("default", epochs=ABSURD),
        lambda: recipe_named("default", prune_epochs=ABSURD),
        lambda: skeleton.GCN(heads=ABSURD),
        lambda: skeleton.GCN(blocks=ABSURD),
        lambda: skeleton.GCN(filters=50_000, blocks=3),
        lambda: chunked([np.zeros((2, 3, 3), np.float32)], ABSURD),
        lambda: check_count("workers", 10**30),
    ],
)
def test_counts_that_no_machine_can_do(asked: Callable[[], Any]) -> None:
    with pytest.raises(TrellisError, match="expected at most"):
        asked()
