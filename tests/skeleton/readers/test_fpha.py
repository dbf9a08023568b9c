"""FPHA in its published folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.skeleton.folders import FPHA_LIST, fpha_folder, motion, rows, write
from tests.skeleton.readers.same import assert_same, named
from trellis.errors import TrellisError
from trellis.skeleton import load_dataset
from trellis.skeleton.data.layouts import FPHA
from trellis.skeleton.data.readers.fpha import FOLDERS, SPLIT

MORE = (  # with two of each class to train on, so that one can be broken
    *FPHA_LIST,
    ("Subject_4/open_bottle/1", 0, "Training"),
    ("Subject_4/pour_milk/1", 1, "Training"),
)
SKELETON = f"{FOLDERS[0]}/{FPHA_LIST[0][0]}/skeleton.txt"


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("inside", [True, False])
def test_what_was_written_is_read(tmp_path: Path, folder: str, inside: bool) -> None:
    made = fpha_folder(tmp_path, folder=folder)
    write(tmp_path / folder / "Subject_2/pour_milk/4/skeleton.txt", "not in the split")
    data = load_dataset(f"fpha:{tmp_path / folder if inside else tmp_path}")
    assert_same(data, made)
    assert data.classes == ("open_bottle", "pour_milk")
    assert data.layout == FPHA and not data.synthetic and not data.left_out
    [fold] = data.folds
    assert named(data, fold.train) == {n for n, _, side in FPHA_LIST if side == "Training"}
    assert named(data, fold.test) == {n for n, _, side in FPHA_LIST if side == "Test"}
    assert {n: int(label) for n, label in zip(data.names, data.labels, strict=True)} == {
        n: label for n, label, _ in FPHA_LIST
    }


def test_one_level_further_in(tmp_path: Path) -> None:
    made = fpha_folder(tmp_path / "downloads")
    assert_same(load_dataset(f"fpha:{tmp_path}"), made)


def test_leaving_one_subject_out(tmp_path: Path) -> None:
    fpha_folder(tmp_path)
    data = load_dataset(f"fpha:{tmp_path}", protocol="subjects")
    assert [fold.name for fold in data.folds] == ["Subject_1", "Subject_2", "Subject_3"]
    for fold in data.folds:
        assert named(data, fold.test) == {n for n in data.names if n.startswith(fold.name)}
        assert sorted([*fold.train, *fold.test]) == list(range(len(data)))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text + "\n \n\n",
        lambda text: text.replace(" ", "\t"),
        lambda text: text.replace(" ", ","),
        lambda text: text.replace(" ", ", "),
        lambda text: text.replace(" ", ";"),
        lambda text: text.replace("\n", " \n"),
        lambda text: text.replace(" ", ";").replace(".", ","),
        lambda text: text.replace(" ", ",").replace("\n", ",\n"),
        lambda text: text.removesuffix("\n"),
    ],
)
def test_the_same_in_other_dialects(tmp_path: Path, change: Callable[[str], str]) -> None:
    made = fpha_folder(tmp_path)
    path = tmp_path / SKELETON
    write(path, change(path.read_text()))
    assert_same(load_dataset(f"fpha:{tmp_path}"), made)


LINE = " ".join(["0", *["1.5"] * 63])


def with_cell(cell: str) -> str:
    """Two lines, of which the second begins with something else."""
    return f"{LINE}\n{LINE.replace('1.5', cell, 1)}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{LINE}\n{LINE[:-4]}\n", ":2: expected 64 numbers"),
        (f"{LINE}\n{LINE} 7\n", ":2: expected 64 numbers"),
        (f"{LINE}\n{LINE} 7\n{LINE[:-4]}\n", ":2: expected 64 numbers"),
        (f"{LINE}\n\n{LINE}\n", ":2: expected 64 numbers"),
        (with_cell("nan"), ":2: expected a finite number in column 2, got 'nan'"),
        (with_cell("-INF"), ":2: expected a finite number in column 2, got '-INF'"),
        (with_cell("1e999"), ":2: expected a finite number in column 2, got '1e999'"),
        (with_cell("1e30"), ":2: x of 'Wrist' is 1e+30"),
        (with_cell("1_5"), ":2: expected a number in column 2, got '1_5'"),
        (with_cell("x" * 99), f":2: expected a number in column 2, got '{'x' * 40}...'"),
        (with_cell("1.5\0"), ":2: expected a number in column 2, got '1.5\\x00'"),
        (f"{LINE}\n{LINE.replace(' ', ',').replace('1.5', '', 1)}", ":2:"),
        (LINE.replace(" ", ",").replace("1.5", "", 1), ":1: the cell in column 2 is empty"),
        ("", " is empty"),
        ("\n \r\n", " is empty"),
        ("\ufeff", " is empty"),
        (f"{LINE}\n1 ".encode() + b"\xff\n", ":2: invalid UTF-8"),
        (f"{LINE}\n".encode("utf-16"), ":1: expected UTF-8 text, got UTF-16"),
        (bytes(range(256)) * 9, "UTF-8"),
        ("<html><body>404</body></html>", ":1:"),
    ],
)  # fmt: skip
def test_a_broken_recording_is_told_by_file_and_line(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    made = fpha_folder(tmp_path, MORE)
    path = write(tmp_path / SKELETON, text)
    with pytest.raises(TrellisError) as told:
        load_dataset(f"fpha:{tmp_path}")
    assert str(path) + said in str(told.value) or (said in str(told.value) and said == "UTF-8")
    del made[FPHA_LIST[0][0]]
    data = load_dataset(f"fpha:{tmp_path}", skip_bad=True)
    assert_same(data, made)
    assert [item.name for item in data.left_out] == [FPHA_LIST[0][0]]
    assert data.left_out[0].why == str(told.value)


def split_with(root: Path, old: str, new: str) -> None:
    text = (root / SPLIT).read_text()
    assert old in text
    write(root / SPLIT, text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "said", "left"),
    [
        ("open_bottle/1 0", "open_bottle/7 0", "file not found", 1),
        ("open_bottle/1 0", "open_bottle/1", f"{SPLIT}:2: expected a line such as", 1),
        ("open_bottle/1 0", "open_bottle/1 x", f"{SPLIT}:2:", 1),
        ("open_bottle/1 0", "../1 0", f"{SPLIT}:2:", 1),
        ("open_bottle/1 0", "open_bottle/1 -1", f"{SPLIT}:2:", 1),
        ("pour_milk/3 1", "pour_milk/3 0", f"{SPLIT}:3: label 0 is pour_milk here", 1),
        ("pour_milk/3 1", "open_bottle/1 0", f"{SPLIT}:3: Subject_1/open_bottle/1 is listed", 1),
        ("Training 4", "Training 5", "expected 5 lines under 'Training', got 4", None),
        ("Training 4", "Training", f"{SPLIT}:1: expected 'Training N'", None),
        ("Test 2", "Training 2", f"{SPLIT}:6: duplicate section 'Training'", None),
    ],
)
def test_a_broken_split(tmp_path: Path, old: str, new: str, said: str, left: int | None) -> None:
    fpha_folder(tmp_path, MORE)
    split_with(tmp_path, old, new)
    with pytest.raises(TrellisError, match=r".") as told:
        load_dataset(f"fpha:{tmp_path}")
    assert said in str(told.value)
    if left is None:  # nobody knows what is missing
        with pytest.raises(TrellisError):
            load_dataset(f"fpha:{tmp_path}", skip_bad=True)
    else:
        data = load_dataset(f"fpha:{tmp_path}", skip_bad=True)
        assert len(data.left_out) == left and len(data) + left == len(MORE)


def test_a_label_without_data(tmp_path: Path) -> None:
    fpha_folder(tmp_path, [(n, 2 * label, side) for n, label, side in FPHA_LIST])
    with pytest.raises(TrellisError, match="the label 1 has no recording"):
        load_dataset(f"fpha:{tmp_path}")
    data = load_dataset(f"fpha:{tmp_path}", skip_bad=True)
    assert len(data) == len(FPHA_LIST) and [item.name for item in data.left_out] == ["label 1"]
    assert data.classes == ("open_bottle", "1", "pour_milk")


def test_nothing_left_to_train_on_is_an_error_all_the_same(tmp_path: Path) -> None:
    fpha_folder(tmp_path)
    for name, _, side in FPHA_LIST:
        if side == "Training":
            write(tmp_path / FOLDERS[0] / name / "skeleton.txt", "")
    with pytest.raises(TrellisError, match=r"nothing to train on .* 2 left out"):
        load_dataset(f"fpha:{tmp_path}", skip_bad=True)
    for name, _, _ in FPHA_LIST:
        write(tmp_path / FOLDERS[0] / name / "skeleton.txt", "")
    with pytest.raises(TrellisError, match=r"no recording could be read; 4 left out.*empty"):
        load_dataset(f"fpha:{tmp_path}", skip_bad=True)


def test_a_class_left_without_anything_to_train_on_is_left_out_too(tmp_path: Path) -> None:
    fpha_folder(tmp_path)
    write(tmp_path / SKELETON, "")
    data = load_dataset(f"fpha:{tmp_path}", skip_bad=True)
    assert [item.name for item in data.left_out] == [FPHA_LIST[0][0], FPHA_LIST[1][0]]
    assert named(data, data.folds[0].test) == {FPHA_LIST[3][0]}


def test_a_class_that_one_subject_alone_has_is_part_of_the_protocol(tmp_path: Path) -> None:
    listed = (*FPHA_LIST, ("Subject_3/wave/1", 2, "Training"), ("Subject_3/wave/2", 2, "Test"))
    made = fpha_folder(tmp_path, listed)
    assert_same(load_dataset(f"fpha:{tmp_path}", protocol="subjects"), made)


def test_both_folders_are_one_too_many(tmp_path: Path) -> None:
    for folder in FOLDERS:
        fpha_folder(tmp_path, folder=folder)
    with pytest.raises(TrellisError, match="holds both"):
        load_dataset(f"fpha:{tmp_path}")
    assert len(load_dataset(f"fpha:{tmp_path / FOLDERS[1]}")) == len(FPHA_LIST)


def test_without_the_split(tmp_path: Path) -> None:
    fpha_folder(tmp_path)
    (tmp_path / SPLIT).unlink()
    with pytest.raises(TrellisError, match=f"{SPLIT} not found in"):
        load_dataset(f"fpha:{tmp_path}")


def test_a_thousand_frames_come_out_as_numpy_reads_them(tmp_path: Path) -> None:
    long = motion(1151, 21, 5)
    fpha_folder(tmp_path)
    path = write(tmp_path / SKELETON, rows(long))
    data = load_dataset(f"fpha:{tmp_path}")
    expected = np.genfromtxt(path)[:, 1:].reshape(-1, 21, 3).astype(np.float32)
    np.testing.assert_array_equal(data.sequences[0], expected)
