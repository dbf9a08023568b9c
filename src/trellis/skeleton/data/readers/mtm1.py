"""MTM-1 hand motions: 14 videos of assembly work, MediaPipe's 21 hand joints, a label a frame.

``graphdata/0_..._original.csv`` and so on; the first number is the video's. Contiguous frames with
one label make a recording. Frames without a hand are all zeros and are dropped. Recordings with
fewer than four frames left are left out and counted, whether or not bad files are skipped.

Protocol: ``videos``. Videos 6, 12 and 20 are for testing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from ....errors import TrellisError
from ..dataset import Frames, LeftOut, Skeletons
from ..layouts import MEDIAPIPE_HAND
from .reader import Entry, Reading, register_reader, split
from .text import at, brief, find, names, numbers, points, read_lines, shown

CLASSES = ("Negative", "Reach", "Grasp", "Move", "Position", "Release")
TEST = (6, 12, 20)
SHORTEST = 4  # frames
HEAD = ("", *MEDIAPIPE_HAND.joints, "LABEL")
_FILE = re.compile(r"(\d{1,9})_.*original\.csv", re.ASCII)
_CELL = r'"\([^,()"]+,[^,()"]+,[^,()"]+\)"'
_ROW = re.compile(rf"\d+((?:,{_CELL}){{{len(MEDIAPIPE_HAND.joints)}}}),([^,\"]*)", re.ASCII)
_PUNCTUATION = str.maketrans("", "", '"() ')


@register_reader("mtm1", protocols=("videos",), about="MTM-1 hand motions")
def read(path: Path, protocol: str, reading: Reading) -> Skeletons:
    folder = find(
        path,
        ("graphdata",),
        lambda folder: any(_FILE.fullmatch(name) for name in names(folder)),
        "a folder of videos such as 6_..._original.csv",
    )
    files = {name: _FILE.fullmatch(name) for name in names(folder)}
    videos = [
        Entry(name, folder / name, int(match[1]))  # the label of a video is its number
        for name, match in files.items()
        if match is not None
    ]
    videos.sort(key=lambda video: video.label)
    labels: dict[str, list[int]] = {}

    def frames(video: Entry) -> Frames:
        labels[video.name], found = read_video(video.path)
        return found

    recordings: list[tuple[Entry, Frames]] = []
    for video, found in reading.frames(videos, frames):
        side = "test" if video.label in TEST else "train"
        for first, label, segment in segments(labels[video.name], found):
            name = f"{video.name}:{first}"
            if len(segment) < SHORTEST:
                why = (
                    f"this segment is too short: {len(segment)} frames with a hand; expected at "
                    f"least {SHORTEST}"
                )
                reading.left_out.append(LeftOut(shown(name), why))
            else:
                recordings.append((Entry(name, video.path, label, side), segment))
    reading.labelled(CLASSES, [entry for entry, _ in recordings], at(folder))
    return reading.result(
        recordings,
        CLASSES,
        MEDIAPIPE_HAND,
        lambda groups, _: split("videos 6, 12, 20", [group == "test" for group in groups]),
    )


def segments(labels: Sequence[int], frames: Frames) -> Iterator[tuple[int, int, Frames]]:
    """Yield (line of its first frame, label, frames with a hand) for each run of one label."""
    seen = (frames != 0).any(axis=(1, 2))
    start = 0
    for label, run in groupby(labels):
        stop = start + len(list(run))
        yield start + 2, label, frames[start:stop][seen[start:stop]]
        start = stop


def read_video(path: Path) -> tuple[list[int], Frames]:
    """Return the label of each frame, and the frames (frames, 21, 3)."""
    head, *lines = read_lines(path)
    if tuple(head.split(",")) != HEAD:
        raise TrellisError(
            f"{at(path, 1)}: expected the columns number, {len(HEAD) - 2} joints from WRIST to "
            f"PINKY_TIP, and LABEL, got {brief(head)}"
        )
    if not lines:
        raise TrellisError(f"{at(path)} has no frames")
    labels, cells = [], []
    for number, line in enumerate(lines, 2):
        row = _ROW.fullmatch(line.strip())
        if row is None:
            raise TrellisError(
                f"{at(path, number)}: expected a number, {len(HEAD) - 2} joints such as "
                f'"(0.5, 0.3, -0.1)", and a label, got {brief(line)}'
            )
        if row[2] not in CLASSES:
            raise TrellisError(
                f"{at(path, number)}: unknown label {brief(row[2])}; known: {', '.join(CLASSES)}"
            )
        labels.append(CLASSES.index(row[2]))
        cells.append(row[1][1:].translate(_PUNCTUATION))
    joints = MEDIAPIPE_HAND.joints
    places = range(2, len(lines) + 2)
    rows = numbers(path, cells, 3 * len(joints), f"x y z of {len(joints)} joints", places)
    return labels, points(path, rows, joints, places).astype(np.float32)
