"""SBU, NW-UCLA and SHREC'17 in their published folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.skeleton.folders import (
    SHREC17_ROWS,
    Array,
    nw_ucla_folder,
    sbu_folder,
    shrec17_folder,
    write,
)
from tests.skeleton.readers.same import assert_same, named
from trellis.errors import TrellisError
from trellis.skeleton import load_dataset
from trellis.skeleton.data.layouts import NW_UCLA, SBU, SHREC17
from trellis.skeleton.data.readers import nw_ucla, sbu

Made = Callable[[Path], dict[str, Array]]


@pytest.mark.parametrize(
    ("kind", "make", "inside"),
    [
        ("sbu", sbu_folder, ""),
        ("sbu", sbu_folder, "SBU"),
        ("nw-ucla", nw_ucla_folder, ""),
        ("nw-ucla", nw_ucla_folder, "data"),
        ("nw-ucla", nw_ucla_folder, "data/NW-UCLA"),
        ("nw-ucla", nw_ucla_folder, "data/NW-UCLA/all_sqe"),
        ("shrec17", shrec17_folder, ""),
    ],
)
def test_what_was_written_is_read(tmp_path: Path, kind: str, make: Made, inside: str) -> None:
    made = make(tmp_path)
    data = load_dataset(f"{kind}:{tmp_path / inside}")
    assert_same(data, made)
    assert data.layout.name == kind and not data.left_out
    assert set(data.labels) == set(range(len(data.classes)))


def test_sbu_folds_are_by_pair(tmp_path: Path) -> None:
    sbu_folder(tmp_path)
    data = load_dataset(f"sbu:{tmp_path}")
    assert len(data.folds) == 5 and data.layout == SBU and data.classes == sbu.CLASSES
    for fold, pairs in zip(data.folds, sbu.FOLDS, strict=True):
        assert named(data, fold.test) == {n for n in data.names if n.startswith(pairs)}
        assert sorted([*fold.train, *fold.test]) == list(range(len(data)))
    labels = dict(zip(data.names, data.labels, strict=True))
    assert all(int(name.split("/")[1]) == label + 1 for name, label in labels.items())


@pytest.mark.parametrize(
    ("change", "said", "left"),
    [
        (lambda sbu: (sbu / "s05s02/02").rename(sbu / "s05s02/09"), "unknown class 09", 1),
        (lambda sbu: (sbu / "s05s02/04").mkdir(), "the class has no sequences", 1),
        (lambda sbu: (sbu / "s05s02/02/002").mkdir(), "file not found", 1),
        (lambda sbu: (sbu / "s09s08").mkdir(), "unknown pair s09s08", 1),
        (lambda sbu: (sbu / "s05s02").rename(sbu / "elsewhere"), "the pair s05s02 is missing", 1),
        (lambda sbu: (sbu / "README.txt").write_text("hello"), None, 0),
    ],
)
def test_sbu_folders_that_are_not_right(
    tmp_path: Path, change: Callable[[Path], object], said: str | None, left: int
) -> None:
    sbu_folder(tmp_path)
    change(tmp_path / "SBU")
    if said is not None:
        with pytest.raises(TrellisError, match=said):
            load_dataset(f"sbu:{tmp_path}")
    assert len(load_dataset(f"sbu:{tmp_path}", skip_bad=True).left_out) == left


def test_nw_ucla_tests_on_the_third_view_with_and_without_its_list(tmp_path: Path) -> None:
    nw_ucla_folder(tmp_path / "listed")
    nw_ucla_folder(tmp_path / "plain", split=False)
    for folder in ("listed", "plain"):
        data = load_dataset(f"nw-ucla:{tmp_path / folder}")
        [fold] = data.folds
        assert named(data, fold.test) == {n for n in data.names if n.endswith("v03")}
        assert len(fold.train) == 2 * len(fold.test)
        actions = [int(name[1:3]) for name in data.names]
        assert [nw_ucla.ACTIONS[label] for label in data.labels] == actions


FIRST = "data/NW-UCLA/all_sqe/a01_s01_e00_v01.json"


def frames(change: Callable[[Any], object]) -> str:
    value = np.zeros((2, 20, 3)).tolist()
    change(value)
    return json.dumps({"skeletons": value})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "invalid JSON"),
        ("{", "json:1: invalid JSON"),
        ('{\n\n"skeletons": }', "json:3: invalid JSON"),
        (b"\xff", "invalid UTF-8"),
        ("[" * 100_000, "invalid JSON"),
        ('{"skeletons": ' + "9" * 5000 + "}", "invalid JSON"),
        ("[]", "has no 'skeletons'"),
        ('{"skeletons": []}', "expected a list of frames, got a list of 0"),
        ('{"skeletons": {}}', "expected a list of frames, got an object"),
        (frames(lambda v: v[1].pop()), "frame 1: expected 20 joints, got a list of 19"),
        (frames(lambda v: v[1][3].pop()), "frame 1, 'head': expected x, y, z, got a list of 2"),
        (frames(lambda v: v[1].__setitem__(3, None)), "'head': expected x, y, z, got null"),
        (frames(lambda v: v[1][3].__setitem__(0, "1")), "got \"'1'\""),
        (frames(lambda v: v[1][3].__setitem__(0, None)), "got 'None'"),
        (frames(lambda v: v[1][3].__setitem__(0, float("nan"))), "got 'nan'"),
        (frames(lambda v: v[1][3].__setitem__(0, 10**400)), "got '1000"),
        (frames(lambda v: v[1][3].__setitem__(0, 1e10)), "got '10000000000.0'"),
        (frames(lambda v: None), "has 2 frames where split.json says 2"),
        (frames(lambda v: v.append(v[0])), "expected 2 frames, as in split.json, got 3"),
    ],
)  # fmt: skip
def test_broken_json(tmp_path: Path, text: str | bytes, said: str) -> None:
    made = nw_ucla_folder(tmp_path)
    write(tmp_path / FIRST, text)
    if said.endswith("2 frames where split.json says 2"):  # which is fine
        assert len(load_dataset(f"nw-ucla:{tmp_path}")) == len(made)
        return
    with pytest.raises(TrellisError) as told:
        load_dataset(f"nw-ucla:{tmp_path}")
    assert said in str(told.value) and "a01_s01_e00_v01.json" in str(told.value)
    data = load_dataset(f"nw-ucla:{tmp_path}", skip_bad=True)
    assert [item.name for item in data.left_out] == ["a01_s01_e00_v01"]
    assert len(data) == len(made) - 1


@pytest.mark.parametrize(
    ("change", "said", "left"),
    [
        (lambda s: s["train"][0].pop("label"), "train[0]: expected a file_name", 1),
        (lambda s: s["train"][0].update(label=11), "train[0]: expected a file_name", 1),
        (lambda s: s["train"][0].update(label="1"), "train[0]: expected a file_name", 1),
        (
            lambda s: s["train"][0].update(file_name="../../passwd"),
            "train[0]: expected a file_name",
            1,
        ),
        (lambda s: s["train"][0].update(file_name="a01_s09_e00_v01"), "file not found", 1),
        (lambda s: s["val"].append(s["train"][0]), "val[10]: a01_s01_e00_v01 is listed twice", 1),
        (lambda s: s["train"].append(7), "train[20]: expected a file_name", 1),
        (lambda s: s.pop("val"), "expected the lists", None),
    ],
)
def test_a_broken_list(
    tmp_path: Path, change: Callable[[Any], object], said: str, left: int | None
) -> None:
    nw_ucla_folder(tmp_path)
    listed = json.loads((tmp_path / "split.json").read_text())
    change(listed)
    rows = sum(map(len, listed.values()))
    write(tmp_path / "split.json", json.dumps(listed))
    with pytest.raises(TrellisError) as told:
        load_dataset(f"nw-ucla:{tmp_path}")
    assert said in str(told.value)
    if left is not None:
        data = load_dataset(f"nw-ucla:{tmp_path}", skip_bad=True)
        assert len(data.left_out) == left and len(data) + left == rows


def test_a_name_that_is_none_without_the_list(tmp_path: Path) -> None:
    made = nw_ucla_folder(tmp_path, split=False)
    write(tmp_path / "data/NW-UCLA/all_sqe/a07_s01_e00_v01.json", "{}")
    with pytest.raises(TrellisError, match=r"a07_s01_e00_v01\.json: expected a name"):
        load_dataset(f"nw-ucla:{tmp_path}")
    data = load_dataset(f"nw-ucla:{tmp_path}", skip_bad=True)
    assert_same(data, made)
    assert data.layout == NW_UCLA and len(data.left_out) == 1


@pytest.mark.parametrize(("protocol", "classes"), [(None, 14), ("14", 14), ("28", 28)])
def test_shrec17_protocols(tmp_path: Path, protocol: str | None, classes: int) -> None:
    shrec17_folder(tmp_path)
    data = load_dataset(f"shrec17:{tmp_path}", protocol=protocol)
    assert len(data.classes) == classes and data.layout == SHREC17
    [fold] = data.folds
    assert len(fold.train) == len(fold.test) == 28
    assert {data.names[i].split("/")[2] for i in fold.test} == {"subject_2"}
    for name, label in zip(data.names, data.labels, strict=True):
        gesture, finger = int(name.split("/")[0][8:]), int(name.split("/")[1][7:])
        assert label == (gesture - 1 if classes == 14 else 2 * (gesture - 1) + finger - 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1 1 1 1 1 1", "expected seven numbers"),
        ("1 1 1 1 1 x 5", "expected seven numbers"),
        ("15 1 1 1 1 1 5", "got 15 and 1"),
        ("1 3 1 1 1 1 5", "got 1 and 3"),
        ("1 1 9 1 1 1 5", "file not found"),
        ("1 1 1 1 2 1 5", "label 2 is grab here, but tap"),
        ("1 2 1 1 1 2 5", "gesture_1/finger_2/subject_1/essai_1 is listed twice"),
    ],
)
def test_a_broken_line_of_shrec17(tmp_path: Path, line: str, said: str) -> None:
    shrec17_folder(tmp_path)
    listing = tmp_path / "train_gestures.txt"
    _, *rest = listing.read_text().splitlines()
    write(listing, "\n".join([*rest, line]))
    with pytest.raises(TrellisError) as told:
        load_dataset(f"shrec17:{tmp_path}")
    assert said in str(told.value)
    data = load_dataset(f"shrec17:{tmp_path}", skip_bad=True)
    assert len(data.left_out) == 1
    assert len(data) + 1 == sum(map(len, SHREC17_ROWS.values()))


def test_a_whole_gesture_missing_from_the_lists(tmp_path: Path) -> None:
    shrec17_folder(tmp_path)
    for side in ("train", "test"):
        path = tmp_path / f"{side}_gestures.txt"
        lines = path.read_text().splitlines(keepends=True)
        write(path, "".join(line for line in lines if not line.startswith("3 ")))
    with pytest.raises(TrellisError, match="the label 3 has no recording"):
        load_dataset(f"shrec17:{tmp_path}")
    data = load_dataset(f"shrec17:{tmp_path}", skip_bad=True)
    assert len(data.classes) == 14 and [item.name for item in data.left_out] == ["label 3"]


@pytest.mark.parametrize("kind", ["fpha", "sbu", "nw-ucla", "shrec17", "mtm1"])
def test_a_folder_of_something_else(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "holiday/beach.jpg", "sand")
    with pytest.raises(TrellisError, match=r": expected .*; it holds holiday$"):
        load_dataset(f"{kind}:{tmp_path}")
    with pytest.raises(TrellisError, match="got a file"):
        load_dataset(f"{kind}:{tmp_path / 'holiday/beach.jpg'}")
    with pytest.raises(TrellisError, match="folder not found"):
        load_dataset(f"{kind}:{tmp_path / 'nowhere'}")
