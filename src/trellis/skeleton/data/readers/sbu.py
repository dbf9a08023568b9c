"""SBU Kinect interaction: 8 classes, 21 pairs of people, two times 15 joints.

``SBU/s01s02/01/001/skeleton_pos.txt`` and so on: a pair, a class, a sequence. Coordinates are
those of the files, in fractions of the sensor's image and range.

Protocol: ``five folds`` by pair, as published with the set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ....errors import TrellisError
from ..dataset import Skeletons
from ..layouts import SBU
from .reader import Entry, Reading, held_out, register_reader
from .text import at, find, fixed_frames, shown, subfolders

CLASSES = (
    "approaching", "departing", "kicking", "pushing", "shaking hands", "hugging",
    "exchanging objects", "punching",
)  # fmt: skip
FOLDS = (
    ("s01s02", "s03s04", "s05s02", "s06s04"),
    ("s02s03", "s02s07", "s03s05", "s05s03"),
    ("s01s03", "s01s07", "s07s01", "s07s03"),
    ("s02s01", "s02s06", "s03s02", "s03s06"),
    ("s04s02", "s04s03", "s04s06", "s06s02", "s06s03"),
)
_FOLD = {pair: f"fold {number}" for number, pairs in enumerate(FOLDS, 1) for pair in pairs}
_PAIR = re.compile(r"s\d\ds\d\d", re.ASCII)


@register_reader("sbu", protocols=("five folds",), about="SBU Kinect interaction")
def read(path: Path, protocol: str, reading: Reading) -> Skeletons:
    folder = find(
        path,
        ("SBU",),
        lambda folder: any(_PAIR.fullmatch(sub.name) for sub in subfolders(folder)),
        "a folder of pairs, s01s02 to s07s03, each with classes 01 to 08",
    )
    entries = list(_listed(folder, reading))
    reading.labelled(CLASSES, entries, at(folder))
    found = reading.frames(entries, lambda e: fixed_frames(e.path, SBU.joints, numbered=True))
    return reading.result(found, CLASSES, SBU, lambda groups, _: held_out(groups))


def _listed(folder: Path, reading: Reading) -> Iterator[Entry]:
    there = {sub.name: sub for sub in subfolders(folder) if _PAIR.fullmatch(sub.name)}
    for pair in sorted(there.keys() | _FOLD.keys()):
        if pair not in there:
            reading.fault(pair, TrellisError(f"{at(folder)}: the pair {pair} is missing"))
        elif pair not in _FOLD:
            told = f"{at(there[pair])}: unknown pair {pair}; no fold tests on it"
            reading.fault(pair, TrellisError(told))
        else:
            for sub in subfolders(there[pair]):
                yield from _sequences(sub, pair, reading)


def _sequences(folder: Path, pair: str, reading: Reading) -> Iterator[Entry]:
    name = f"{pair}/{folder.name}"
    label = int(folder.name) - 1 if re.fullmatch(r"0[1-8]", folder.name, re.ASCII) else None
    sequences = subfolders(folder)
    if label is None:
        told = f"{at(folder)}: unknown class {shown(folder.name)}; expected 01 to 08"
        reading.fault(name, TrellisError(told))
    elif not sequences:
        reading.fault(name, TrellisError(f"{at(folder)}: the class has no sequences"))
    else:
        for sequence in sequences:
            path = sequence / "skeleton_pos.txt"
            yield Entry(f"{name}/{sequence.name}", path, label, _FOLD[pair])
