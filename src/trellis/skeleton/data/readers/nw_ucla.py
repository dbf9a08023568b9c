"""Northwestern-UCLA multi-view actions: 10 classes, 3 views, 20 Kinect joints in metres.

``data/NW-UCLA/all_sqe/a01_s01_e00_v01.json`` and so on (action, subject, repetition, view), and
``split.json`` beside or above them. Without that file the names of the recordings give the same
split: views 1 and 2 for training, view 3 for testing.

Protocol: ``cross-view``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ....errors import TrellisError
from ..dataset import Frames, Skeletons
from ..layouts import NW_UCLA
from .reader import Entry, Reading, register_reader, split
from .text import at, brief, find, json_frames, names, read_json

CLASSES = (
    "pick up with one hand", "pick up with two hands", "drop trash", "walk around", "sit down",
    "stand up", "donning", "doffing", "throw", "carry",
)  # fmt: skip
ACTIONS = (1, 2, 3, 4, 5, 6, 8, 9, 11, 12)  # their numbers in file names
SPLIT, RECORDINGS = "split.json", "all_sqe"
_NAME = re.compile(r"a(\d\d)_s\d\d_e\d\d_v(0[123])", re.ASCII)


@register_reader("nw-ucla", protocols=("cross-view",), about="Northwestern-UCLA multi-view actions")
def read(path: Path, protocol: str, reading: Reading) -> Skeletons:
    folder = find(
        path.parent if path.name == RECORDINGS else path,
        ("NW-UCLA", "data/NW-UCLA"),
        lambda folder: (folder / RECORDINGS).is_dir(),
        f"a folder with {RECORDINGS}/ and {SPLIT}",
    )
    above = [folder, path, folder.parent, folder.parent.parent]
    listing = next((p / SPLIT for p in above if os.path.lexists(p / SPLIT)), None)
    recordings = folder / RECORDINGS
    lengths: dict[str, int] = {}
    if listing is None:
        entries = list(_by_name(recordings, reading))
    else:
        entries = reading.once(_listed(listing, recordings, lengths, reading))
    reading.labelled(CLASSES, entries, at(listing or recordings))
    found = reading.frames(entries, lambda entry: _frames(entry, lengths.get(entry.name)))
    return reading.result(
        found,
        CLASSES,
        NW_UCLA,
        lambda groups, _: split(protocol, [group == "val" for group in groups]),
    )


def _listed(
    listing: Path, recordings: Path, lengths: dict[str, int], reading: Reading
) -> Iterator[tuple[str, Entry]]:
    sides = read_json(listing)
    if not isinstance(sides, dict) or not all(
        isinstance(sides.get(side), list) for side in ("train", "val")
    ):
        raise TrellisError(f"{at(listing)}: expected the lists 'train' and 'val'")
    for side in ("train", "val"):
        for number, row in enumerate(sides[side]):
            place = f"{at(listing)}: {side}[{number}]"
            match row:
                case {"file_name": str(name), "length": int(length), "label": int(label)} if (
                    _NAME.fullmatch(name) and 1 <= label <= len(CLASSES)
                ):
                    lengths.setdefault(name, length)
                    yield place, Entry(name, recordings / f"{name}.json", label - 1, side)
                case _:
                    told = (
                        f"{place}: expected a file_name such as a01_s01_e00_v01, a length and a "
                        f"label from 1 to {len(CLASSES)}, got {brief(str(row))}"
                    )
                    reading.fault(f"{side}[{number}]", TrellisError(told))


def _by_name(recordings: Path, reading: Reading) -> Iterator[Entry]:
    for file in names(recordings):
        name = file.removesuffix(".json")
        parts = _NAME.fullmatch(name)
        if parts is None or name == file or int(parts[1]) not in ACTIONS:
            told = f"{at(recordings / file)}: expected a name such as a01_s01_e00_v01.json"
            reading.fault(file, TrellisError(told))
            continue
        side = "val" if parts[2] == "03" else "train"
        yield Entry(name, recordings / file, ACTIONS.index(int(parts[1])), side)


def _frames(entry: Entry, length: int | None) -> Frames:
    value = read_json(entry.path)
    if not isinstance(value, dict) or "skeletons" not in value:
        raise TrellisError(f"{at(entry.path)} has no 'skeletons'")
    found = json_frames(entry.path, value["skeletons"], NW_UCLA.joints)
    if length is not None and len(found) != length:
        raise TrellisError(
            f"{at(entry.path)}: expected {length} frames, as in {SPLIT}, got {len(found)}"
        )
    return found
