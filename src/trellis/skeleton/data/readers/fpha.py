"""FPHA, first-person hand actions: 45 classes, 6 subjects, 21 joints in millimetres.

``Hand_pose_annotation_v1/Subject_1/open_juice_bottle/2/skeleton.txt`` and so on (some copies say
``_v1_1``), with ``data_split_action_recognition.txt`` beside that folder. Only recordings that the
split lists are read: three sequences on disk are in neither half.

Protocols: ``1:1``, the published split; ``subjects``, six folds, each tests on one subject.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ....errors import TrellisError
from ..dataset import Skeletons
from ..layouts import FPHA
from .reader import Entry, Meanings, Reading, held_out, register_reader, split
from .text import at, beside, brief, find, fixed_frames, read_lines, subfolders

FOLDERS = ("Hand_pose_annotation_v1", "Hand_pose_annotation_v1_1")
SPLIT = "data_split_action_recognition.txt"
_HEAD = re.compile(r"(Training|Test)\s+(\d{1,9})", re.ASCII)
_ENTRY = re.compile(r"((Subject_\d+)/(?!\.)([^/\s\x00]+)/\d+)\s+(\d{1,4})", re.ASCII)


@register_reader("fpha", protocols=("1:1", "subjects"), about="first-person hand actions")
def read(path: Path, protocol: str, reading: Reading) -> Skeletons:
    folder = find(
        path,
        FOLDERS,
        lambda folder: any(re.fullmatch(r"Subject_\d+", sub.name) for sub in subfolders(folder)),
        f"a folder with {FOLDERS[0]}/Subject_1 to Subject_6, and {SPLIT}",
    )
    listing = beside(SPLIT, folder.parent, path, folder)
    meanings = Meanings()
    entries = reading.once(_listed(listing, folder, protocol, meanings, reading))
    classes = meanings.classes()
    reading.labelled(classes, entries, at(listing))
    found = reading.frames(entries, lambda e: fixed_frames(e.path, FPHA.joints, numbered=True))
    return reading.result(
        found,
        classes,
        FPHA,
        lambda groups, _: (
            held_out(groups)
            if protocol == "subjects"
            else split("1:1", [group == "Test" for group in groups])
        ),
    )


def _listed(
    listing: Path, folder: Path, protocol: str, meanings: Meanings, reading: Reading
) -> Iterator[tuple[str, Entry]]:
    """Yield what the split file lists, each with its place in the file."""
    side = ""
    promised: dict[str, int] = {}
    counted = {"Training": 0, "Test": 0}
    for number, line in enumerate(read_lines(listing), 1):
        place, line = at(listing, number), line.strip()
        if not line:
            continue
        if head := _HEAD.fullmatch(line):
            side = head[1]
            if side in promised:
                raise TrellisError(f"{place}: duplicate section {side!r}")
            promised[side] = int(head[2])
            continue
        if not side:
            raise TrellisError(
                f"{place}: expected 'Training N' or 'Test N' first, got {brief(line)}"
            )
        counted[side] += 1
        try:
            entry = _ENTRY.fullmatch(line)
            if entry is None:
                raise TrellisError(
                    f"{place}: expected a line such as 'Subject_1/open_juice_bottle/2 0', got "
                    f"{brief(line)}"
                )
            name, subject, action, label = entry.groups()
            meanings.learn(int(label), action, place)
        except TrellisError as error:
            reading.fault(f"{listing.name}:{number}", error)
            continue
        group = subject if protocol == "subjects" else side
        yield place, Entry(name, folder / name / "skeleton.txt", int(label), group)
    for side, count in counted.items():
        if promised.get(side) != count:
            raise TrellisError(
                f"{at(listing)}: expected {promised.get(side, 0)} lines under {side!r}, got "
                f"{count}; is the file complete?"
            )
