"""MTM-1: videos cut into recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.skeleton.folders import MTM1_LABELS, Array, motion, mtm1_folder, mtm1_video, write
from trellis.errors import TrellisError
from trellis.skeleton import load_dataset
from trellis.skeleton.data.layouts import MEDIAPIPE_HAND
from trellis.skeleton.data.readers.mtm1 import CLASSES


def video(root: Path, number: int) -> Path:
    return root / "graphdata" / f"{number}_mdc04_mtc05_Train_original.csv"


def cut(labels: list[str], frames: Array) -> list[tuple[str, Array]]:
    """The definition, one frame after another."""
    found: list[tuple[str, list[Array]]] = []
    for place, (label, frame) in enumerate(zip(labels, frames, strict=True)):
        if place == 0 or label != labels[place - 1]:
            found.append((label, []))
        if frame.any():
            found[-1][1].append(frame)
    return [(label, np.array(kept)) for label, kept in found]


@pytest.mark.parametrize("inside", ["", "graphdata"])
def test_runs_of_a_label_become_recordings(tmp_path: Path, inside: str) -> None:
    made = mtm1_folder(tmp_path, (20, 0, 6))
    data = load_dataset(f"mtm1:{tmp_path / inside}")
    expected = [piece for number in (0, 6, 20) for piece in cut(MTM1_LABELS, made[number])]
    assert [CLASSES[label] for label in data.labels] == [label for label, _ in expected]
    for frames, (_, piece) in zip(data.sequences, expected, strict=True):
        np.testing.assert_array_equal(frames, piece.astype(np.float32))
    [fold] = data.folds
    assert {data.names[i].split("_")[0] for i in fold.test} == {"6", "20"}
    assert {data.names[i].split("_")[0] for i in fold.train} == {"0"}
    assert data.layout == MEDIAPIPE_HAND and not data.left_out


@pytest.mark.parametrize("skip_bad", [False, True])
def test_frames_without_a_hand_and_recordings_too_short(tmp_path: Path, skip_bad: bool) -> None:
    mtm1_folder(tmp_path)
    labels = ["Reach"] * 6 + ["Grasp"] * 5 + ["Move"] * 3 + ["Reach"] * 4
    frames = motion(len(labels), 21)
    frames[2:4] = 0  # of six, four are left
    frames[7:9] = 0  # of five, three are left
    mtm1_video(video(tmp_path, 2), labels, frames)
    data = load_dataset(f"mtm1:{tmp_path}", skip_bad=skip_bad)
    mine = [i for i, name in enumerate(data.names) if name.startswith("2_")]
    pieces = [piece for _, piece in cut(labels, frames) if len(piece) >= 4]
    for i, piece in zip(mine, pieces, strict=True):
        np.testing.assert_array_equal(data.sequences[i], piece.astype(np.float32))
    assert [(item.name.split(":")[1], item.why) for item in data.left_out] == [
        ("8", "this segment is too short: 3 frames with a hand; expected at least 4"),
        ("13", "this segment is too short: 3 frames with a hand; expected at least 4"),
    ]


def test_a_video_in_which_one_joint_is_zero_is_not_without_a_hand(tmp_path: Path) -> None:
    mtm1_folder(tmp_path)
    frames = motion(5, 21)
    frames[:, 1:] = 0
    mtm1_video(video(tmp_path, 2), ["Reach"] * 5, frames)
    assert len(load_dataset(f"mtm1:{tmp_path}").left_out) == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (",WRIST,", ",ELBOW,", "csv:1: expected the columns"),
        (",Grasp\n", ",Sleep\n", "csv:12: unknown label 'Sleep'"),
        (",Grasp\n", ",\n", "csv:12: unknown label ''"),
        (",Grasp\n", ',"(1, 2, 3)",Grasp\n', "csv:12: expected a number, 21 joints"),
        ("\n10,", "\nten,", "csv:12: expected a number, 21 joints"),
        ('\n10,"(', '\n10,"(nan', "csv:12: expected a number in column 1, got 'nan"),
        ('\n10,"(', '\n10,"(1e30, 1, 2)","(', "csv:12:"),
        ('\n10,"(', "\n10,\"('", "csv:12:"),
        ("\n10,", "\n\n10,", "csv:12: expected a number, 21 joints"),
    ],
)
def test_a_broken_video(tmp_path: Path, old: str, new: str, said: str) -> None:
    mtm1_folder(tmp_path, (0, 1, 6))
    path = video(tmp_path, 0)
    assert old in path.read_text()
    write(path, path.read_text().replace(old, new, 1))
    with pytest.raises(TrellisError) as told:
        load_dataset(f"mtm1:{tmp_path}")
    assert f"0_mdc04_mtc05_Train_original.{said}" in str(told.value)
    data = load_dataset(f"mtm1:{tmp_path}", skip_bad=True)
    assert [item.name for item in data.left_out] == [path.name]
    assert {name.split("_")[0] for name in data.names} == {"1", "6"}


def test_a_header_alone_and_no_test_video(tmp_path: Path) -> None:
    mtm1_folder(tmp_path, (0, 1))
    with pytest.raises(TrellisError, match=r"nothing to test on in the fold 'videos 6, 12, 20'"):
        load_dataset(f"mtm1:{tmp_path}")
    mtm1_video(video(tmp_path, 6), [], motion(0, 21))
    with pytest.raises(TrellisError, match="has no frames"):
        load_dataset(f"mtm1:{tmp_path}")
