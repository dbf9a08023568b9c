"""Broken files of one recording, as `trellis evaluate` reads them: frames, or one error of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.skeleton import folders
from tests.skeleton.readers.broken import Change, changed, changes, members
from trellis.errors import TrellisError
from trellis.skeleton import Layout, read_recording
from trellis.skeleton.data.readers.text import LARGEST

ARM = Layout("own", ("shoulder", "elbow", "hand"), (-1, 0, 1))
FRAMES = folders.motion(4, 3)


def npz(path: Path) -> None:
    np.savez(path, frames=FRAMES[None, :, ::-1], lengths=[4], joints=ARM.joints[::-1])


@dataclass(frozen=True)
class Kind:
    """A file of `FRAMES`: its name, how to write it, and how to break it."""

    name: str
    make: Callable[[Path], object]
    changes: st.SearchStrategy[Change] = changes


def text(name: str, content: str) -> Kind:
    return Kind(name, lambda path: path.write_text(content))


KINDS = {
    "rows": text("wave.csv", folders.rows(FRAMES, ",", numbered=False)),
    "numbered rows": text("wave.txt", folders.rows(FRAMES)),
    "named columns": text("wave.CSV", folders.headed(FRAMES, ARM.joints)),
    "lists": text("wave.json", json.dumps(FRAMES.tolist())),
    "lists beside others": text("wave.json", json.dumps({"skeletons": FRAMES.tolist(), "a": [1]})),
    "zip": Kind("wave.npz", npz),
    "arrays in it": Kind("wave.npz", npz, members),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
@settings(max_examples=100, deadline=5000)  # ms: whatever is in a file, nobody waits for ever
def test_frames_or_one_error(folder: Path, name: str, data: st.DataObject) -> None:
    kind = KINDS[name]
    path = folder / kind.name
    kind.make(path)
    np.testing.assert_array_equal(read_recording(path, ARM), FRAMES.astype(np.float32))
    with changed(path, data.draw(kind.changes)):
        try:
            found = read_recording(path, ARM)
        except TrellisError as error:
            assert str(path) in str(error) and len(str(error)) > len(str(path)) + 5
        else:
            assert found.dtype == np.float32 and found.shape == (len(found), 3, 3) and len(found)
            assert np.isfinite(found).all() and np.abs(found).max() <= LARGEST
