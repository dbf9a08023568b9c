"""Tiny data sets in the published folder layouts, as their authors would have written them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellis.skeleton.data.layouts import MEDIAPIPE_HAND
from trellis.skeleton.data.readers import fpha, nw_ucla, sbu

Array = NDArray[np.float64]


def motion(frames: int, joints: int, seed: int = 0) -> Array:
    """(frames, joints, 3), with few enough digits to be the same as text."""
    return np.round(np.random.default_rng(seed).normal(0, 100, (frames, joints, 3)), 3)


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(frames: Array, mark: str = " ", numbered: bool = True) -> str:
    """A frame a line, as FPHA (white space) and SBU (commas) have it."""
    return "".join(
        mark.join([str(number)] * numbered + [f"{value:g}" for value in frame.ravel()]) + "\n"
        for number, frame in enumerate(frames)
    )


FPHA_LIST = (  # (name, label, side)
    ("Subject_1/open_bottle/1", 0, "Training"),
    ("Subject_2/open_bottle/1", 0, "Test"),
    ("Subject_1/pour_milk/3", 1, "Training"),
    ("Subject_3/pour_milk/1", 1, "Test"),
)


def fpha_folder(
    root: Path,
    listed: Sequence[tuple[str, int, str]] = FPHA_LIST,
    folder: str = fpha.FOLDERS[0],
) -> dict[str, Array]:
    """Write the set; what each recording should be read as."""
    made = {}
    for seed, (name, _, _) in enumerate(listed):
        made[name] = motion(3 + seed, 21, seed)
        write(root / folder / name / "skeleton.txt", rows(made[name]))
    text = ""
    for side in ("Training", "Test"):
        mine = [f"{name} {label}\n" for name, label, where in listed if where == side]
        text += f"{side} {len(mine)}\n" + "".join(mine)
    write(root / fpha.SPLIT, text)
    return made


def sbu_folder(root: Path) -> dict[str, Array]:
    """One sequence for each pair, and all eight classes from the first."""
    made = {}
    pairs = [pair for fold in sbu.FOLDS for pair in fold]
    names = [f"{pairs[0]}/{label:02d}/001" for label in range(1, 9)]
    names += [f"{pair}/{1 + at % 8:02d}/001" for at, pair in enumerate(pairs[1:])]
    for seed, name in enumerate(names):
        made[name] = motion(2 + seed % 5, 30, seed)
        write(root / "SBU" / name / "skeleton_pos.txt", rows(made[name], ","))
    return made


def nw_ucla_folder(root: Path, split: bool = True) -> dict[str, Array]:
    """Every action in every view."""
    made: dict[str, Array] = {}
    sides: dict[str, list[dict[str, object]]] = {"train": [], "val": []}
    for label, action in enumerate(nw_ucla.ACTIONS, 1):
        for view in (1, 2, 3):
            name = f"a{action:02d}_s01_e00_v{view:02d}"
            made[name] = motion(1 + label, 20, 10 * label + view)
            row = {"file_name": name, "length": len(made[name]), "label": label}
            sides["val" if view == 3 else "train"].append(row)
            write(
                root / "data/NW-UCLA/all_sqe" / f"{name}.json",
                json.dumps({"file_name": name, "skeletons": made[name].tolist(), "label": label}),
            )
    if split:
        write(root / "split.json", json.dumps(sides))
    return made


SHREC17_ROWS = {  # gesture, finger, subject, essai, label of 14, label of 28, length
    "train": [(g, f, 1, 1, g, 2 * (g - 1) + f, 5) for g in range(1, 15) for f in (1, 2)],
    "test": [(g, f, 2, 1, g, 2 * (g - 1) + f, 5) for g in range(1, 15) for f in (1, 2)],
}


def shrec17_folder(root: Path) -> dict[str, Array]:
    made = {}
    for side, listed in SHREC17_ROWS.items():
        write(root / f"{side}_gestures.txt", "".join(f"{' '.join(map(str, r))}\n" for r in listed))
        for g, f, s, e, *_ in listed:
            name = f"gesture_{g}/finger_{f}/subject_{s}/essai_{e}"
            made[name] = motion(5, 22, 100 * g + 10 * f + s)
            write(root / name / "skeletons_world.txt", rows(made[name], numbered=False))
    return made


def mtm1_video(path: Path, labels: Sequence[str], frames: Array) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["", *MEDIAPIPE_HAND.joints, "LABEL"])
        for number, (label, frame) in enumerate(zip(labels, frames, strict=True)):
            cells = [f"({x:g}, {y:g}, {z:g})" for x, y, z in frame]
            table.writerow([number, *cells, label])


MTM1_LABELS = [
    label for label in ("Negative", "Reach", "Grasp", "Move", "Position", "Release", "Reach")
    for _ in range(5)
]  # fmt: skip


def mtm1_folder(root: Path, videos: Iterable[int] = (0, 6)) -> dict[int, Array]:
    made = {}
    for video in videos:
        made[video] = motion(len(MTM1_LABELS), 21, video)
        path = root / "graphdata" / f"{video}_mdc04_mtc05_Train_original.csv"
        mtm1_video(path, MTM1_LABELS, made[video])
    return made


def csv_folder(root: Path, files: Sequence[str], joints: int = 4) -> dict[str, Array]:
    """Plain numbers between commas."""
    made = {}
    for seed, name in enumerate(files):
        made[name] = motion(3 + seed, joints, seed)
        write(root / name, rows(made[name], ",", numbered=False))
    return made


def headed(frames: Array, joints: Sequence[str]) -> str:
    """The same under a header."""
    names = ",".join(f"{joint}_{axis}" for joint in joints for axis in "xyz")
    return f"{names}\n{rows(frames, ',', numbered=False)}"
