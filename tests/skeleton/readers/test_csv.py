"""People's own recordings in a folder of CSV files, and one at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.skeleton.folders import csv_folder, headed, motion, rows, write
from tests.skeleton.readers.same import assert_same, named
from trellis.errors import TrellisError
from trellis.skeleton import Layout, load_dataset, read_recording
from trellis.skeleton.data.layouts import FPHA, MEDIAPIPE_HAND, NW_UCLA, SBU
from trellis.skeleton.data.readers.reader import HALVES

FILES = ["walk/1.csv", "walk/2.CSV", "sit/1.csv", "sit/2.txt"]
ARM = Layout("own", ("shoulder", "elbow", "hand"), (-1, 0, 1))


def test_folders_are_labels(tmp_path: Path) -> None:
    made = csv_folder(tmp_path, FILES)
    write(tmp_path / "README.md", "mine")
    write(tmp_path / "walk/.DS_Store", "x")
    data = load_dataset(f"csv:{tmp_path}")
    assert_same(data, made)
    assert data.classes == ("sit", "walk")
    assert [data.classes[label] for label in data.labels] == [n.split("/")[0] for n in data.names]
    [fold] = data.folds
    assert fold.name == HALVES and sorted(data.labels[fold.test]) == [0, 1]


def test_train_and_test_are_a_split(tmp_path: Path) -> None:
    made = csv_folder(tmp_path, ["train/walk/1.csv", "train/sit/1.csv", "test/walk/1.csv"])
    data = load_dataset(f"csv:{tmp_path}")
    assert_same(data, made)
    assert data.classes == ("sit", "walk")
    assert named(data, data.folds[0].test) == {"test/walk/1.csv"}


def test_a_class_to_test_on_alone(tmp_path: Path) -> None:
    sides = ["train/walk/1.csv", "test/walk/1.csv", "test/sit/1.csv", "test/sit/2.csv"]
    made = csv_folder(tmp_path, sides)
    with pytest.raises(TrellisError) as told:
        load_dataset(f"csv:{tmp_path}")
    assert "the test recording test/sit/1.csv is of the class sit, which has no training" in str(
        told.value
    )
    assert "add some, or remove the class" in str(told.value)
    data = load_dataset(f"csv:{tmp_path}", skip_bad=True)
    assert_same(data, {name: made[name] for name in sides[:2]})
    assert [item.name for item in data.left_out] == sides[2:]
    assert data.left_out[0].why == str(told.value)


def test_a_class_to_train_on_alone_can_be_learnt(tmp_path: Path) -> None:
    made = csv_folder(tmp_path, ["train/walk/1.csv", "train/sit/1.csv", "test/walk/1.csv"])
    assert_same(load_dataset(f"csv:{tmp_path}"), made)


def test_halves_stay_as_they_are_when_a_recording_is_added(tmp_path: Path) -> None:
    names = [f"{label}/{number}.csv" for label in ("point", "wave") for number in range(6)]
    csv_folder(tmp_path, names)
    [before] = (data := load_dataset(f"csv:{tmp_path}")).folds
    csv_folder(tmp_path, ["point/6.csv"])
    [after] = (more := load_dataset(f"csv:{tmp_path}")).folds
    assert named(data, before.train) <= named(more, after.train)
    assert named(data, before.test) <= named(more, after.test)
    assert len(before.train) == len(before.test) == 6


@pytest.mark.parametrize("head", ["file,label,split\n", "File;Label;Split\n", ""])
def test_labels_in_a_file(tmp_path: Path, head: str) -> None:
    made = csv_folder(tmp_path, ["a.csv", "b.csv", "deep/c.csv"])
    mark = ";" if ";" in head else ","
    listed = [("a.csv", "walk", "train"), ("b.csv", "sit, down", "train"),
              ("deep\\c.csv", "walk", "Test")]  # fmt: skip
    text = "".join(mark.join(f'"{cell}"' for cell in row) + "\n" for row in listed)
    write(tmp_path / "labels.csv", head + text)
    data = load_dataset(f"csv:{tmp_path}")
    assert_same(data, made)
    assert data.classes == ("sit, down", "walk")
    assert named(data, data.folds[0].test) == {"deep/c.csv"}


def test_labels_in_a_file_and_the_split_in_folders(tmp_path: Path) -> None:
    csv_folder(tmp_path, ["train/a.csv", "train/b.csv", "test/c.csv"])
    write(tmp_path / "labels.csv", "train/a.csv,x\ntrain/b.csv,y\ntest/c.csv,x\n")
    data = load_dataset(f"csv:{tmp_path}")
    assert named(data, data.folds[0].test) == {"test/c.csv"}


def test_no_split_in_the_file_is_half_and_half(tmp_path: Path) -> None:
    csv_folder(tmp_path, ["a.csv", "b.csv"])
    write(tmp_path / "labels.csv", "file,label\na.csv,x\n\nb.csv,x\n")
    assert load_dataset(f"csv:{tmp_path}").folds[0].name == HALVES


@pytest.mark.parametrize(
    ("text", "said", "left"),
    [
        ("a.csv,x\nb.csv,x\nc.csv,x\n", "file not found", 1),
        ("a.csv,x\n", "does not list b.csv", 1),
        ("a.csv,x\nb.csv,x\nb.csv,y\n", "labels.csv:3: b.csv is listed twice (see line 2)", 1),
        ("a.csv,x\nb.csv,x\n./b.csv,x\n", "b.csv is listed twice", 1),
        (
            "a.csv,x\nb.csv,x\nb.csv\n",
            "labels.csv:3: expected file,label or file,label,split, got 'b.csv'",
            1,
        ),
        ("a.csv,x\nb.csv,x\n,x\n", "labels.csv:3:", 1),
        (
            "a.csv,x\nb.csv,x\n../a.csv,x\n",
            "labels.csv:3: expected a file within this folder, got '../a.csv'",
            1,
        ),
        ("a.csv,x\nb.csv,x\n/etc/passwd,x\n", "expected a file within", 1),
        (
            "a.csv,x\nb.csv,x\nc.csv,x,maybe\n",
            "labels.csv:3: expected train or test, got 'maybe'",
            1,
        ),
        ("a.csv,x,train\nb.csv,x,test\nc.csv,x\n", "has no side of the split", 1),
        ("a.csv,x\nb.csv,x\nc\0.csv,x\n", "labels.csv:3:", 1),
        ('a.csv,x\n"b.csv,x\n', "labels.csv:2:", None),
        ("", "labels.csv is empty", None),
        (b"\xffa", "labels.csv:1: invalid UTF-8", None),
    ],
)
def test_broken_labels(tmp_path: Path, text: str | bytes, said: str, left: int | None) -> None:
    csv_folder(tmp_path, ["a.csv", "b.csv"])
    write(tmp_path / "labels.csv", text)
    with pytest.raises(TrellisError) as told:
        load_dataset(f"csv:{tmp_path}")
    assert said in str(told.value)
    if left is not None and "does not list" not in said:
        assert len(load_dataset(f"csv:{tmp_path}", skip_bad=True).left_out) == left


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda root: write(root / "lost.csv", "1,2,3"), "lost.csv has no label"),
        (lambda root: write(root / "walk/deep/1.csv", "1,2,3"), "got a folder"),
        (lambda root: write(root / "walk/film.mp4", "x"), "expected a recording"),
        (lambda root: (root / "empty").mkdir(), "the label has no recordings"),
        (lambda root: write(root / "walk/3.csv", "1,2,3\n"), "expected 4 joints, got 1"),
        (
            lambda root: write(root / "walk/3.csv", "1,2,3,4\n"),
            "expected x y z of some joints, got 4",
        ),
        (lambda root: write(root / "walk/3.csv", ""), "is empty"),
        (lambda root: os.symlink(root / "walk/loop.csv", root / "walk/loop.csv"), "loop.csv"),
        (lambda root: os.symlink(root, root / "walk/up"), "got a folder"),
        (lambda root: os.mkfifo(root / "walk/pipe.csv"), "got a pipe"),
    ],
)
def test_what_does_not_belong_is_no_silent_loss(
    tmp_path: Path, change: Callable[[Path], Any], said: str
) -> None:
    made = csv_folder(tmp_path, FILES)
    change(tmp_path)
    with pytest.raises(TrellisError, match=said):
        load_dataset(f"csv:{tmp_path}")
    data = load_dataset(f"csv:{tmp_path}", skip_bad=True)
    assert_same(data, made)
    assert len(data.left_out) == 1


def test_a_folder_beside_train_and_test(tmp_path: Path) -> None:
    csv_folder(tmp_path, ["train/walk/1.csv", "test/walk/1.csv", "val/walk/1.csv"])
    with pytest.raises(TrellisError, match="val lies beside train/ and test/"):
        load_dataset(f"csv:{tmp_path}")
    assert len(load_dataset(f"csv:{tmp_path}", skip_bad=True).left_out) == 1


def test_links_that_go_round_end(tmp_path: Path) -> None:
    csv_folder(tmp_path, ["a.csv", "b.csv"])
    os.symlink(tmp_path, tmp_path / "round")
    write(tmp_path / "labels.csv", "a.csv,x\nb.csv,x\n")
    with pytest.raises(TrellisError, match=r"does not list round/"):
        load_dataset(f"csv:{tmp_path}")


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(TrellisError, match="holds no recordings"):
        load_dataset(f"csv:{tmp_path}")


def test_headers_name_the_joints_in_any_order(tmp_path: Path) -> None:
    one, two = motion(4, 3, 1), motion(2, 3, 2)
    write(tmp_path / "wave/1.csv", headed(one, ARM.joints))
    write(tmp_path / "wave/2.csv", headed(two[:, ::-1], ARM.joints[::-1]))
    data = load_dataset(f"csv:{tmp_path}")
    assert_same(data, {"wave/1.csv": one, "wave/2.csv": two})
    assert data.layout.joints == ARM.joints and data.layout.bones == ()


def test_known_joints_bring_their_bones(tmp_path: Path) -> None:
    for name in ("x/1.csv", "x/2.csv"):
        write(tmp_path / name, headed(motion(2, 21), MEDIAPIPE_HAND.joints))
    assert load_dataset(f"csv:{tmp_path}").layout == MEDIAPIPE_HAND


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"joints": ARM.joints, "parents": [-1, 0, 1]}, ARM),
        ({"joints": ARM.joints, "parents": [None, "shoulder", "elbow"]}, ARM),
        ({"joints": ARM.joints, "parents": ["", "shoulder", "elbow"]}, ARM),
        ({"joints": ARM.joints, "parents": [-1, 0, 1], "roots": ["elbow"], "mirror": [2, 1, 0]},
         Layout("own", ARM.joints, ARM.parents, (1,), (2, 1, 0))),
    ],
)  # fmt: skip
def test_a_layout_of_ones_own(tmp_path: Path, given: dict[str, Any], expected: Layout) -> None:
    made = csv_folder(tmp_path, ["x/1.csv", "x/2.csv"], joints=3)
    write(tmp_path / "x/2.csv", rows(made["x/2.csv"], ","))  # with a frame number
    write(tmp_path / "layout.json", json.dumps(given))
    data = load_dataset(f"csv:{tmp_path}")
    assert_same(data, made)
    assert data.layout == expected


def test_a_known_layout_by_name(tmp_path: Path) -> None:
    csv_folder(tmp_path, ["x/1.csv", "x/2.csv"], joints=21)
    write(tmp_path / "layout.json", '{"layout": "fpha"}')
    assert load_dataset(f"csv:{tmp_path}").layout == FPHA


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "layout.json:1: invalid JSON"),
        ("[]", "an object with 'joints'"),
        ('{"joints": ["a"], "bones": []}', "an object with 'joints'"),
        ('{"joints": [1]}', "a list of names as 'joints'"),
        ('{"joints": ["a"], "parents": 3}', "a list of joints as 'parents'"),
        ('{"joints": ["a"], "parents": [true]}', "a list of joints as 'parents'"),
        ('{"joints": ["a"], "parents": ["b"]}', "unknown joint 'b'"),
        ('{"joints": ["a"], "parents": []}', "1 joints and 0 parents"),
        ('{"joints": []}', "has no joints"),
        ('{"layout": "octopus"}', "unknown layout 'octopus'; known: fpha"),
        ('{"joints": ["a", "b"]}', "expected 6 numbers (x y z of 2 joints), got 9"),
    ],
)
def test_a_broken_layout(tmp_path: Path, text: str, said: str) -> None:
    csv_folder(tmp_path, ["x/1.csv", "x/2.csv"], joints=3)
    write(tmp_path / "layout.json", text)
    with pytest.raises(TrellisError) as told:
        load_dataset(f"csv:{tmp_path}")
    assert said in str(told.value)


HAND = motion(3, 3)
HEAD = "shoulder_x,shoulder_y,shoulder_z,elbow_x,elbow_y,elbow_z,hand_x,hand_y,hand_z"


@pytest.mark.parametrize(
    "text",
    [
        rows(HAND, ",", numbered=False),
        rows(HAND, " "),
        rows(HAND, ";", numbered=False).replace(".", ","),
        headed(HAND, ARM.joints),
        headed(HAND[:, ::-1], ARM.joints[::-1]).replace(",", ";"),
        "\ufeff" + headed(HAND, ARM.joints).replace("\n", "\r\n"),
        headed(HAND, ARM.joints).replace("_x", "_X"),
        headed(HAND, ARM.joints).replace(HEAD, HEAD.replace("shoulder_x", '"shoulder_x"')),
        f"frame,{HEAD}\n{rows(HAND, ',')}",
        f'"",{HEAD}\n{rows(HAND, ",")}',
        f"{HEAD},Time\n" + rows(HAND, ",", numbered=False).replace("\n", ",7\n"),
        f"{HEAD},\n" + rows(HAND, ",", numbered=False).replace("\n", ",\n"),
        f"{HEAD.replace(',', ' ')}\n" + rows(HAND, " ", numbered=False),
    ],
)
def test_one_recording_in_every_dialect(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "wave.csv", text)
    np.testing.assert_array_equal(read_recording(path, ARM), HAND.astype(np.float32))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD, "has a header and no frames"),
        (f"{HEAD},nose_x,nose_y,nose_z\n{'1,' * 12}\n", "names unknown joints: 'nose'"),
        (f"{HEAD[:-21]}\n1,2,3,4,5,6\n", ":1 does not name 'hand'"),
        (f"{HEAD[:-7]}\n1,2,3,4,5,6,7,8\n", ":1: the joint 'hand' has no column 'hand_z'"),
        (f"{HEAD},hand_z\n{'1,' * 10}\n", ":1: duplicate column 'hand_z'"),
        (f"{HEAD},speed\n{'1,' * 10}\n", ":1: unknown column 'speed'"),
        ("frame,time\n1,2\n", "no joints"),
        (f"{HEAD}\n1,2,3,4,5,6,7,8\n", ":2: expected 9 numbers"),
        (
            f"{HEAD}\n1,2,3,4,5,6,7,8,9\n1,2,3,4,x,6,7,8,9\n",
            ":3: expected a number in column 5, got 'x'",
        ),
        (f"{HEAD}\n1,2,3,4,,6,7,8,9\n", ":2: the cell in column 5 is empty"),
        (f"{HEAD}\n1,2,3,4,nan,6,7,8,9\n", ":2: expected a finite number in column 5, got 'nan'"),
        (f"{HEAD}\n1,2,3,4,5e9,6,7,8,9\n", ":2: y of 'elbow' is 5e+09"),
        ("1,2,3\n", ":1: expected 9 numbers"),
        ("1,2,3,4,5,6,7,8,oops\n", ":1: expected a number in column 9, got 'oops'"),
    ],
)
def test_one_broken_recording(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path / "wave.csv", text)
    with pytest.raises(TrellisError) as told:
        read_recording(path, ARM)
    assert str(path) in str(told.value) and said in str(told.value)


def test_one_recording_in_the_formats_of_published_sets(tmp_path: Path) -> None:
    hand, pair, person = motion(4, 21), motion(3, 30), motion(2, 20)
    cases = [
        (write(tmp_path / "skeleton.txt", rows(hand)), FPHA, hand),
        (write(tmp_path / "skeleton_pos.txt", rows(pair, ",")), SBU, pair),
        (write(tmp_path / "a.json", json.dumps({"skeletons": person.tolist()})), NW_UCLA, person),
        (write(tmp_path / "b.json", json.dumps(person.tolist())), NW_UCLA, person),
    ]
    np.savez(tmp_path / "hand.npz", frames=hand)
    for path, layout, made in [*cases, (tmp_path / "hand.npz", FPHA, hand)]:
        np.testing.assert_array_equal(read_recording(path, layout), made.astype(np.float32))
    np.savez(tmp_path / "hand.npz", frames=person)
    with pytest.raises(TrellisError, match=r"\(frames, 21, 3\), got .*\(2, 20, 3\)"):
        read_recording(tmp_path / "hand.npz", FPHA)
    with pytest.raises(TrellisError, match="expected a list of frames, got null"):
        read_recording(write(tmp_path / "c.json", "{}"), NW_UCLA)
    with pytest.raises(TrellisError, match="file not found"):
        read_recording(tmp_path / "none.csv", ARM)
