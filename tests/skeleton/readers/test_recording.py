"""One recording in a file of numpy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.skeleton.folders import motion
from trellis.errors import TrellisError
from trellis.skeleton import Layout, read_recording

ARM = Layout("own", ("shoulder", "elbow", "hand"), (-1, 0, 1))
FRAMES = motion(4, 3)


@pytest.mark.parametrize(
    "arrays",
    [
        {"frames": FRAMES},
        {"frames": FRAMES, "lengths": [4]},
        {"frames": FRAMES, "joints": ARM.joints},
        {"frames": FRAMES[:, ::-1], "joints": ARM.joints[::-1]},
        {"frames": FRAMES[:, [2, 0, 1]], "joints": [b"hand", b"shoulder", b"elbow"]},
        {"frames": FRAMES[None]},
        {"frames": np.concatenate([FRAMES, FRAMES * np.nan])[None], "lengths": [4]},
        {"frames": FRAMES[None, :, ::-1], "lengths": [4], "joints": ARM.joints[::-1]},
    ],
)
def test_the_same_recording(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "wave.npz", **arrays)
    found = read_recording(tmp_path / "wave.npz", ARM)
    np.testing.assert_array_equal(found, FRAMES.astype(np.float32))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"frames": FRAMES, "lengths": [3, 1]}, "expected one recording, got 2"),
        ({"frames": np.stack([FRAMES] * 3), "lengths": [4, 4, 4]}, "expected one recording, got 3"),
        ({"frames": np.stack([FRAMES] * 3)}, "expected one recording, got 3"),
        ({"frames": FRAMES, "lengths": [3]}, "'lengths' add up to 3, but 'frames' has 4"),
        ({"frames": FRAMES[0, 0], "lengths": [3]}, "expected 'frames'"),
        ({"frames": FRAMES.ravel()}, "expected 'frames'"),
        ({"frames": FRAMES.ravel(), "joints": ARM.joints}, "expected 'frames'"),
        ({"frames": FRAMES, "joints": ["shoulder", "elbow", "foot"]}, "does not name 'hand'"),
        ({"frames": FRAMES[:, :2], "joints": ["shoulder", "elbow"]}, "does not name 'hand'"),
        ({"frames": motion(4, 4), "joints": [*ARM.joints, "nose"]}, "unknown joints: 'nose'"),
        ({"frames": FRAMES, "joints": ["hand", "elbow", "hand"]}, "'hand' is named twice"),
        ({"frames": FRAMES, "joints": ["hand"]}, "expected 3 names in 'joints'"),
        ({"frames": FRAMES, "joints": [0, 1, 2]}, "expected 3 names in 'joints'"),
        ({"frames": FRAMES[:0], "joints": ARM.joints}, "has no frames"),
    ],
)
def test_what_is_not_one_recording(tmp_path: Path, arrays: dict[str, Any], said: str) -> None:
    path = tmp_path / "wave.npz"
    np.savez(path, **arrays)
    with pytest.raises(TrellisError) as told:
        read_recording(path, ARM)
    assert str(path) in str(told.value) and said in str(told.value)
    assert ("one recording" in said) == (f"--data npz:{path}" in str(told.value))


def test_a_number_that_is_none_is_told_by_the_name_its_own_file_gives(tmp_path: Path) -> None:
    frames = FRAMES.copy()
    frames[1, 0, 2] = np.inf
    np.savez(tmp_path / "wave.npz", frames=frames, joints=ARM.joints[::-1])
    with pytest.raises(TrellisError, match=r"frame 1, z of 'hand' is inf"):
        read_recording(tmp_path / "wave.npz", ARM)


def test_a_skeleton_in_two_dimensions_lies_in_a_plane(tmp_path: Path) -> None:
    flat = FRAMES[..., :2]
    wanted = (FRAMES * [1, 1, 0]).astype(np.float32)
    rows = "\n".join(",".join(map(repr, row)) for row in flat.reshape(4, -1).tolist())
    head = ",".join(f"{joint}_{axis}" for joint in ARM.joints for axis in "xy")
    (tmp_path / "named.csv").write_text(f"{head}\n{rows}\n")
    (tmp_path / "plain.csv").write_text(rows)
    (tmp_path / "lists.json").write_text(str(flat.tolist()))
    np.savez(tmp_path / "arrays.npz", frames=flat)
    for name in ("named.csv", "plain.csv", "lists.json", "arrays.npz"):
        np.testing.assert_array_equal(read_recording(tmp_path / name, ARM), wanted)
    (tmp_path / "mixed.csv").write_text(f"{head},hand_z\n")
    with pytest.raises(TrellisError, match=r"has no column '(shoulder|elbow)_z'"):
        read_recording(tmp_path / "mixed.csv", ARM)
