"""Broken files of every kind: recordings or one error of ours, nothing else and nothing lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.skeleton import folders
from tests.skeleton.readers.broken import Change, changed, changes, members, where
from trellis.errors import TrellisError
from trellis.skeleton import Skeletons, load_dataset
from trellis.skeleton.data.readers.fpha import SPLIT
from trellis.skeleton.data.readers.text import LARGEST


def npz(root: Path) -> None:
    pieces = [folders.motion(3, 4, seed) for seed in range(4)]
    labels, test = ["a", "b", "a", "b"], [False, False, True, True]
    np.savez(root / "mine.npz", frames=np.concatenate(pieces), lengths=[3] * 4, labels=labels,
             test=test, joints=list("wxyz"), parents=[-1, 0, 0, 0])  # fmt: skip


def listed_csv(root: Path) -> None:
    folders.csv_folder(root, ["a.csv", "b.csv", "c.csv", "d.csv"])
    text = "a.csv,x,train\nb.csv,y,train\nc.csv,x,test\nd.csv,y,test\n"
    folders.write(root / "labels.csv", text)
    text = '{"joints": ["p", "q", "r", "s"], "parents": [-1, 0, 0, 0]}'
    folders.write(root / "layout.json", text)


def headed_csv(root: Path) -> None:
    for seed, name in enumerate(["train/a/1.csv", "train/b/1.csv", "test/a/1.csv", "test/b/1.csv"]):
        folders.write(root / name, folders.headed(folders.motion(3, 2, seed), ("p", "q")))


# What each set lists, counted in another way than its reader does.


def text_lines(path: Path) -> list[str]:
    text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    return [line for line in text.split("\n") if line.strip()]


def fpha_listed(root: Path, data: Skeletons) -> int:
    return sum(
        not line.strip().startswith(("Training", "Test")) for line in text_lines(root / SPLIT)
    )


def sbu_listed(root: Path, data: Skeletons) -> int:
    return len(list(root.glob("SBU/*/*/*")))


def nw_ucla_listed(root: Path, data: Skeletons) -> int:
    if not (root / "split.json").exists():
        return len(list(root.glob("**/all_sqe/*")))
    sides = json.loads((root / "split.json").read_bytes().decode("utf-8-sig"))
    return len(sides["train"]) + len(sides["val"])


def shrec17_listed(root: Path, data: Skeletons) -> int:
    return sum(len(text_lines(path)) for path in root.glob("*_gestures.txt"))


def mtm1_listed(root: Path, data: Skeletons) -> int:
    count = 0
    for path in root.glob("graphdata/*"):
        if path.name in {item.name for item in data.left_out}:
            count += 1
        else:
            labels = [line.rsplit(",", 1)[1].strip() for line in text_lines(path)[1:]]
            count += len(list(groupby(labels)))
    return count


def npz_listed(root: Path, data: Skeletons) -> int:
    return len(np.load(root / "mine.npz")["lengths"])


def csv_listed(root: Path, data: Skeletons) -> int:
    """Every file of the folder is read or left out; what else the list says is left out too."""
    known = {*data.names, *(item.name for item in data.left_out)}
    assert {path.name for path in root.glob("?.csv")} <= known
    return len(data) + len(data.left_out)


def folders_listed(root: Path, data: Skeletons) -> int:
    return sum(max(1, len(list(label.iterdir()))) for label in root.glob("*/*"))


@dataclass(frozen=True)
class Kind:
    """A data set: how to write it, which files to break and how, and what it lists."""

    make: Callable[[Path], object]
    files: str
    listed: Callable[[Path, Skeletons], int]
    changes: st.SearchStrategy[Change] = changes


KINDS = {
    "fpha": Kind(folders.fpha_folder, "**/skeleton.txt", fpha_listed),
    "fpha split": Kind(folders.fpha_folder, SPLIT, fpha_listed),
    "sbu": Kind(folders.sbu_folder, "**/skeleton_pos.txt", sbu_listed),
    "nw-ucla": Kind(folders.nw_ucla_folder, "**/all_sqe/*.json", nw_ucla_listed),
    "nw-ucla split": Kind(folders.nw_ucla_folder, "split.json", nw_ucla_listed),
    "shrec17": Kind(folders.shrec17_folder, "**/skeletons_world.txt", shrec17_listed),
    "shrec17 lists": Kind(folders.shrec17_folder, "*_gestures.txt", shrec17_listed),
    "mtm1": Kind(lambda root: folders.mtm1_folder(root, (0, 2, 6)), "graphdata/*", mtm1_listed),
    "npz": Kind(npz, "mine.npz", npz_listed),
    "npz members": Kind(npz, "mine.npz", npz_listed, members),
    "csv": Kind(listed_csv, "[abcd].csv", csv_listed),
    "csv labels": Kind(listed_csv, "labels.csv", csv_listed),
    "csv layout": Kind(listed_csv, "layout.json", csv_listed),
    "csv folders": Kind(headed_csv, "**/1.csv", folders_listed),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def make(name: str) -> Path:
        root = tmp_path_factory.mktemp("made")
        KINDS[name].make(root)
        return root

    return make


def attempt(source: str, skip_bad: bool) -> Skeletons | TrellisError:
    try:
        data = load_dataset(source, skip_bad=skip_bad)
    except TrellisError as error:
        return error
    for frames in data.sequences:
        assert np.isfinite(frames).all() and np.abs(frames).max() <= LARGEST
    for fold in data.folds:
        assert len(fold.train) and len(fold.test)
    return data


@pytest.mark.parametrize("name", KINDS)
@given(which=where, data=st.data())
@settings(max_examples=60, deadline=5000)  # ms: whatever is in a file, nobody waits for ever
def test_recordings_or_one_error(
    made: Callable[[str], Path], name: str, which: float, data: st.DataObject
) -> None:
    root, change = made(name), data.draw(KINDS[name].changes)
    paths = sorted(root.glob(KINDS[name].files))
    source = f"{name.split()[0]}:{root / 'mine.npz' if name.startswith('npz') else root}"
    with changed(paths[min(int(which * len(paths)), len(paths) - 1)], change):
        strict, skipping = attempt(source, False), attempt(source, True)
        if isinstance(skipping, Skeletons):
            lost = [item for item in skipping.left_out if not item.name.startswith("label ")]
            assert len(skipping) + len(lost) == KINDS[name].listed(root, skipping)
    if isinstance(strict, Skeletons):  # then there was nothing to skip
        assert isinstance(skipping, Skeletons)
        assert strict.names == skipping.names and strict.left_out == skipping.left_out
    elif isinstance(skipping, Skeletons):  # and here there was
        assert skipping.left_out and skipping.left_out[0].why in str(strict)
    assert not isinstance(strict, TrellisError) or len(str(strict)) > 20


def test_a_name_no_file_can_have() -> None:
    for source in ("csv:\0", "npz:a\0b", f"fpha:{'x' * 5000}", "sbu:~nobody-of-that-name/x"):
        with pytest.raises(TrellisError):
            load_dataset(source)
