"""People's own recordings in one file of numpy's."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.skeleton.folders import motion, write
from trellis.errors import TrellisError
from trellis.skeleton import Skeletons, load_dataset
from trellis.skeleton.data.layouts import MEDIAPIPE_HAND
from trellis.skeleton.data.readers.reader import HALVES

LENGTHS = [3, 1, 4, 2]
PIECES = [motion(length, 5, seed) for seed, length in enumerate(LENGTHS)]


def arrays(**changes: Any) -> dict[str, NDArray[Any]]:
    """Four recordings of five joints; a change to None takes an array away."""
    made = {
        "frames": np.concatenate(PIECES),
        "lengths": LENGTHS,
        "labels": ["walk", "sit", "walk", "sit"],
        "test": [False, False, True, True],
    } | changes
    return {name: np.asarray(value) for name, value in made.items() if value is not None}


def saved(folder: Path, **changes: Any) -> str:
    np.savez(folder / "mine.npz", **arrays(**changes))  # type: ignore[arg-type]
    return f"npz:{folder / 'mine.npz'}"


def check(data: Skeletons) -> None:
    for found, piece in zip(data.sequences, PIECES, strict=True):
        np.testing.assert_array_equal(found, piece.astype(np.float32))


def test_one_after_another(tmp_path: Path) -> None:
    data = load_dataset(saved(tmp_path))
    check(data)
    assert data.classes == ("sit", "walk") and data.labels.tolist() == [1, 0, 1, 0]
    [fold] = data.folds
    assert (fold.train.tolist(), fold.test.tolist()) == ([0, 1], [2, 3])
    assert data.layout.bones == () and data.layout.joints[4] == "joint 4"


def test_padded_with_anything(tmp_path: Path) -> None:
    padded = np.full((4, 6, 5, 3), np.nan)
    for row, piece in zip(padded, PIECES, strict=True):
        row[: len(piece)] = piece
    check(load_dataset(saved(tmp_path, frames=padded)))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16])
def test_numbers_of_any_kind(tmp_path: Path, kind: type) -> None:
    frames: NDArray[Any] = np.concatenate(PIECES).astype(kind)
    data = load_dataset(saved(tmp_path, frames=frames))
    np.testing.assert_array_equal(np.concatenate(data.sequences), frames.astype(np.float32))


@pytest.mark.parametrize(
    ("labels", "classes", "names", "expected"),
    [
        ([7, 3, 7, 3], None, ("3", "7"), [1, 0, 1, 0]),
        ([1, 0, 1, 0], ["a", "b"], ("a", "b"), [1, 0, 1, 0]),
        (["b", "a", "b", "a"], ["b", "a"], ("b", "a"), [0, 1, 0, 1]),
        ([b"b", b"a", b"b", b"a"], None, ("a", "b"), [1, 0, 1, 0]),
        ([10, 9, 10, 9], None, ("9", "10"), [1, 0, 1, 0]),
    ],
)
def test_labels(
    tmp_path: Path, labels: Any, classes: Any, names: tuple[str, ...], expected: list[int]
) -> None:
    data = load_dataset(saved(tmp_path, labels=labels, classes=classes))
    assert data.classes == names and data.labels.tolist() == expected


def test_no_split_is_half_and_half_the_same_every_time(tmp_path: Path) -> None:
    one, two = load_dataset(saved(tmp_path, test=None)), load_dataset(saved(tmp_path, test=None))
    [fold], [again] = one.folds, two.folds
    assert fold.name == HALVES
    assert sorted(one.labels[fold.train]) == sorted(one.labels[fold.test]) == [0, 1]
    assert fold.test.tolist() == again.test.tolist()


@pytest.mark.parametrize("bad", [False, True])
def test_halves_stay_as_they_are_when_recordings_are_added_behind(
    tmp_path: Path, bad: bool
) -> None:
    labels = ["walk", "sit", "sit"] * 5
    frames = motion(len(labels) + 2, 5)
    few = load_dataset(
        saved(tmp_path, frames=frames[:-2], lengths=[1] * 15, labels=labels, test=None)
    )
    if bad:  # one that cannot be used is still counted
        frames[0] = np.nan
    more = {"frames": frames, "lengths": [1] * 17, "labels": [*labels, "walk", "swim"]}
    data = load_dataset(saved(tmp_path, **more, test=None), skip_bad=True)
    for side in ("train", "test"):
        before, after = (
            {found.names[i] for i in getattr(found.folds[0], side)} for found in (few, data)
        )
        assert before - {"recording 0"} <= after
    assert len(data.left_out) == bad


@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_class_to_test_on_alone(tmp_path: Path, skip_bad: bool) -> None:
    source = saved(tmp_path, labels=["walk", "walk", "sit", "walk"])
    if not skip_bad:
        with pytest.raises(TrellisError, match=r"mine.npz: .* recording 2 is of the class sit, "):
            load_dataset(source)
    else:
        data = load_dataset(source, skip_bad=True)
        assert [item.name for item in data.left_out] == ["recording 2"]
        assert data.names == ("recording 0", "recording 1", "recording 3")


def test_joints_and_bones(tmp_path: Path) -> None:
    joints = ["hip", "knee", "foot", "head", "tail"]
    data = load_dataset(saved(tmp_path, joints=joints, parents=[-1, 0, 1, 0, 0], roots=[0, 1]))
    assert data.layout.joints == tuple(joints)
    assert data.layout.bones == ((0, 1), (1, 2), (0, 3), (0, 4)) and data.layout.roots == (0, 1)
    assert data.layout.mirror is data.layout.body is None

    for none in ("", -1):  # beside names, numpy makes a string of -1
        by_name = load_dataset(
            saved(tmp_path, joints=joints, parents=[none, "hip", "knee", "hip", "hip"])
        )
        assert by_name.layout.bones == data.layout.bones


def test_sides_and_bodies(tmp_path: Path) -> None:
    joints = ["hips", "neck", "left", "right", "head"]
    body = ["hips", "neck", "left", "right"]
    data = load_dataset(
        saved(tmp_path, joints=joints, parents=[-1] * 5, mirror=[0, 1, 3, 2, 4], body=body)
    )
    assert data.layout.mirror == (0, 1, 3, 2, 4) and data.layout.body == (0, 1, 2, 3)
    frames = motion(sum(LENGTHS), 21)
    known = load_dataset(saved(tmp_path, frames=frames, joints=MEDIAPIPE_HAND.joints))
    assert known.layout == MEDIAPIPE_HAND


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"frames": None}, "has no array 'frames'; it has 'lengths', 'labels', 'test'"),
        ({"lengths": None}, "has no array 'lengths'"),
        ({"labels": None}, "has no array 'labels'"),
        ({"frames": np.zeros((10, 15))}, "got float64 of shape (10, 15)"),
        ({"frames": np.zeros((10, 5, 4))}, "expected 'frames'"),
        ({"frames": np.zeros((10, 0, 3))}, "there are no joints"),
        ({"frames": np.zeros((10, 5, 3), complex)}, "got complex128"),
        ({"frames": np.zeros((10, 5, 3), "U1")}, "expected 'frames'"),
        ({"frames": np.zeros((4, 3, 5, 3))}, "'lengths' must be 4 numbers up to 3"),
        ({"lengths": [3, 1, 4, 3]}, "'lengths' add up to 11, but 'frames' has 10"),
        ({"lengths": [3, 1, 4, -2]}, "counts in 'lengths'"),
        ({"lengths": [3.0, 1, 4, 2]}, "counts in 'lengths', got float64"),
        ({"labels": ["walk"]}, "expected 4 'labels', one per recording, got 1"),
        (
            {"labels": [0.5, 1, 2, 3]},
            "expected 'labels' to be a list of strings or integers, got float64",
        ),
        ({"labels": [b"\xff", b"a", b"a", b"a"]}, "'labels' is not UTF-8"),
        ({"classes": ["walk", "walk"]}, "'classes' holds a name twice"),
        ({"test": [True]}, "each recording in 'test'"),
        ({"test": [0, 1, 2, 3]}, "each recording in 'test'"),
        ({"test": np.zeros(4, [("a", "i4"), ("b", "f4")])}, "each recording in 'test'"),
        ({"test": np.array(["0", "1", "0", "1"])}, "each recording in 'test'"),
        ({"test": [False] * 4}, "nothing to test on"),
        ({"joints": ["a"]}, "expected 5 names in 'joints'"),
        ({"joints": list("aabcd")}, "the joint 'a' is named twice"),
        ({"parents": [0, 1, 2]}, "5 joints and 3 parents"),
        ({"joints": ["a", "b", "", "c", "d"]}, "joint 2 has no name"),
        ({"parents": [-1, 9, 0, 0, 0]}, "the parent of joint 1 is 9"),
        ({"roots": ["nose"]}, "unknown joint 'nose'"),
        ({"roots": [""]}, "roots are (-1,)"),
        ({"body": [0, 1, 2]}, "give four joints, bottom, top, left and right"),
        ({"body": [0, 1, 2, 2]}, "body is (0, 1, 2, 2)"),
        ({"frames": np.array([None])}, "cannot be read as an .npz file (Object arrays"),
        ({"labels": [], "lengths": [], "frames": np.zeros((0, 5, 3)), "test": None}, ""),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    source = saved(tmp_path, **changes)
    for skip_bad in (False, True):
        with pytest.raises(TrellisError) as told:
            load_dataset(source, skip_bad=skip_bad)
        assert said in str(told.value) and "mine.npz" in str(told.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lengths": [3, 1, 6, 0]}, "recording 3 has no frames"),
        ({"labels": ["walk", "sit", "walk", "swim"], "classes": ["sit", "walk"]}, "recording 3"),
        ({"labels": [1, 0, 1, 2], "classes": ["sit", "walk"]}, "label of recording 3"),
        ({"labels": [1, 0, 1, -1], "classes": ["sit", "walk"]}, "label of recording 3"),
        ({"classes": ["sit", "swim", "walk"]}, "the label swim has no recording"),
    ],
)
def test_one_recording_or_label_that_does_not_fit(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    source = saved(tmp_path, **changes)
    with pytest.raises(TrellisError, match=said):
        load_dataset(source)
    data = load_dataset(source, skip_bad=True)
    assert len(data.left_out) == 1
    assert len(data) == (4 if "swim has" in said else 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e20])
def test_a_number_that_is_none_is_told_by_its_place(tmp_path: Path, value: float) -> None:
    frames = np.concatenate(PIECES)
    frames[6, 4, 2] = value
    source = saved(tmp_path, frames=frames)
    with pytest.raises(TrellisError, match=r"recording 2, frame 2, z of 'joint 4' is"):
        load_dataset(source)
    assert [item.name for item in load_dataset(source, skip_bad=True).left_out] == ["recording 2"]


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.npz", pickle.dumps(Trap()))
    with pytest.raises(TrellisError, match="pickles are never loaded"):
        load_dataset(f"npz:{path}")
    trapped = np.array([Trap(), Trap()], dtype=object)
    np.savez(path, **arrays(labels=trapped))  # type: ignore[arg-type]
    with pytest.raises(TrellisError, match="allow_pickle=False"):
        load_dataset(f"npz:{path}")


def test_arrays_that_are_none(tmp_path: Path) -> None:
    """A zip with a file in it that numpy did not write."""
    for name in ("frames", "lengths", "labels", "test"):
        source = saved(tmp_path, **{name: None})
        with ZipFile(tmp_path / "mine.npz", "a") as archive:
            archive.writestr(name, b"1,2,3")
        with pytest.raises(TrellisError, match=f"expected '{name}' to be a numpy array"):
            load_dataset(source)


@pytest.mark.parametrize("code", [0xD800, 0x110000, 0xFFFFFFFF])
def test_text_that_is_none(tmp_path: Path, code: int) -> None:
    """Half of a pair, which cannot be printed, and what is no character at all."""
    labels = np.array([code] * 4, np.uint32).view("<U1")
    with pytest.raises(TrellisError, match="'labels' is not Unicode text"):
        load_dataset(saved(tmp_path, labels=labels))


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.npz", "")
    with pytest.raises(TrellisError, match="is empty"):
        load_dataset(f"npz:{path}")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(TrellisError, match=r"is no \.npz file"):
        load_dataset(f"npz:{tmp_path / 'one.npy'}")
    with pytest.raises(TrellisError, match="got a folder"):
        load_dataset(f"npz:{tmp_path}")
    with pytest.raises(TrellisError, match="file not found"):
        load_dataset(f"npz:{tmp_path / 'none.npz'}")
