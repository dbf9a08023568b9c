"""SHREC'17 hand gestures: 14 gestures, each with one finger or the whole hand, 22 joints.

``gesture_1/finger_1/subject_1/essai_1/skeletons_world.txt`` and so on, with ``train_gestures.txt``
and ``test_gestures.txt`` beside them.

Protocols: ``14`` gestures, or ``28``, where one finger and the whole hand are two classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ....errors import TrellisError
from ..dataset import Skeletons
from ..layouts import SHREC17
from .reader import Entry, Meanings, Reading, register_reader, split
from .text import at, beside, brief, find, fixed_frames, read_lines, subfolders

GESTURES = (
    "grab", "tap", "expand", "pinch", "rotation clockwise", "rotation counter-clockwise",
    "swipe right", "swipe left", "swipe up", "swipe down", "swipe X", "swipe +", "swipe V",
    "shake",
)  # fmt: skip
FINGERS = ("one finger", "whole hand")
_COLUMNS = "gesture, finger, subject, essai, label of 14, label of 28, length"


@register_reader("shrec17", protocols=("14", "28"), about="SHREC'17 hand gestures")
def read(path: Path, protocol: str, reading: Reading) -> Skeletons:
    folder = find(
        path,
        ("HandGestureDataset_SHREC2017",),
        lambda folder: any(re.fullmatch(r"gesture_\d+", sub.name) for sub in subfolders(folder)),
        "a folder with gesture_1 to gesture_14, train_gestures.txt and test_gestures.txt",
    )
    listings = {side: beside(f"{side}_gestures.txt", folder, path) for side in ("train", "test")}
    meanings = Meanings()
    entries = reading.once(
        listed
        for side, listing in listings.items()
        for listed in _listed(listing, side, protocol, meanings, folder, reading)
    )
    classes = meanings.classes(first=1)
    reading.labelled(classes, entries, at(folder))
    found = reading.frames(entries, lambda e: fixed_frames(e.path, SHREC17.joints, numbered=False))
    return reading.result(
        found,
        classes,
        SHREC17,
        lambda groups, _: split(f"{protocol} classes", [group == "test" for group in groups]),
    )


def _listed(
    listing: Path,
    side: str,
    protocol: str,
    meanings: Meanings,
    folder: Path,
    reading: Reading,
) -> Iterator[tuple[str, Entry]]:
    for number, line in enumerate(read_lines(listing), 1):
        if not line.strip():
            continue
        place = at(listing, number)
        try:
            cells = line.split()
            if len(cells) != 7 or not all(
                re.fullmatch(r"[1-9]\d{0,3}", c, re.ASCII) for c in cells
            ):
                raise TrellisError(
                    f"{place}: expected seven numbers ({_COLUMNS}), got {brief(line)}"
                )
            gesture, finger, subject, essai, of_14, of_28, _ = map(int, cells)
            if gesture > len(GESTURES) or finger > len(FINGERS):
                raise TrellisError(
                    f"{place}: expected gesture 1 to 14 and finger 1 or 2, got {gesture} and "
                    f"{finger}"
                )
            action, label = GESTURES[gesture - 1], of_14
            if protocol == "28":
                action, label = f"{action}, {FINGERS[finger - 1]}", of_28
            meanings.learn(label, action, place)
        except TrellisError as error:
            reading.fault(f"{listing.name}:{number}", error)
            continue
        name = f"gesture_{gesture}/finger_{finger}/subject_{subject}/essai_{essai}"
        yield place, Entry(name, folder / name / "skeletons_world.txt", label - 1, side)
