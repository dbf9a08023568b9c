"""People's own recordings in a folder of CSV files: one recording a file, one frame a row.

The label is the name of the folder a file is in, ``walk/3.csv``, or stands in ``labels.csv`` with
the columns file, label and, optionally, split (train or test). Folders ``train/`` and ``test/``
above the labels are a split too; where there is none, halves are drawn (see :mod:`.folds`).
Columns are ``joint_x, joint_y, joint_z`` under a header, or plain numbers. An optional
``layout.json`` names joints, parents and roots (see :mod:`.own_layout`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from ...errors import TrellisError
from ..layout import Layout
from ..skeletons import Frames, Skeletons
from .folders import find, names, subfolders
from .folds import drawn_halves, split
from .labels_csv import LABELS, SIDES, Listed, read_labels
from .own_layout import own_layout, read_layout
from .reading import Entry, Reading
from .recording import Recorded, arranged, read_table
from .text import at, shown

PROTOCOLS = ("split",)
LAYOUT = "layout.json"
KINDS = (".csv", ".txt", ".tsv")


def read(path: Path, protocol: str, reading: Reading) -> Skeletons:
    folder = find(path, (), lambda folder: True, "a folder of CSV files, in one folder per label")
    if os.path.lexists(folder / LABELS):
        listed = read_labels(folder, reading, sorted(_files(folder, depth=3)))
    else:
        listed = list(_by_folder(folder, reading))
    if not listed and not reading.left_out:
        raise TrellisError(
            f"{at(folder)} holds no recordings: put CSV files into folders named after their "
            f"labels, or list them in {LABELS}"
        )
    classes = sorted({item.label for item in listed})
    given = any(item.side for item in listed)
    entries = [
        Entry(
            item.name,
            folder / item.name,
            classes.index(item.label),
            item.side if given else item.name,
        )
        for item in listed
    ]
    layout, found = _recordings(folder, entries, reading)
    return reading.result(
        found,
        classes,
        layout,
        lambda groups, labels: (
            split("as given", [group == "test" for group in groups])
            if given
            else drawn_halves(groups, labels)
        ),
    )


def _recordings(
    folder: Path, entries: list[Entry], reading: Reading
) -> tuple[Layout, list[tuple[Entry, Frames]]]:
    """All that fit one layout: that of ``layout.json``, or the one most files have."""
    layout = read_layout(folder / LAYOUT) if os.path.lexists(folder / LAYOUT) else None
    expected = None if layout is None else len(layout.joints)
    tables: dict[str, Recorded] = {}

    def frames(entry: Entry) -> Frames:
        tables[entry.name] = read_table(entry.path, expected)
        return tables[entry.name].frames

    read = reading.frames(entries, frames)
    layout = layout or _shared(tables.values())
    found = []
    for entry, _ in read:
        try:
            found.append((entry, arranged(entry.path, tables[entry.name], layout)))
        except TrellisError as error:
            reading.fault(entry.name, error)
    return layout, found


def _shared(tables: Collection[Recorded]) -> Layout:
    counts = Counter(table.frames.shape[1] for table in tables)
    count = counts.most_common(1)[0][0] if counts else 1
    named = Counter(table.joints for table in tables if table.joints and len(table.joints) == count)
    plain = tuple(f"joint {number}" for number in range(count))
    return own_layout(named.most_common(1)[0][0] if named else plain)


def _by_folder(folder: Path, reading: Reading) -> Iterator[Listed]:
    sides = [sub for sub in subfolders(folder) if sub.name in SIDES]
    for name in names(folder):
        if _is_recording(name) and not os.path.isdir(folder / name):
            told = (
                f"{at(folder / name)} has no label: put it into a folder named after its label, "
                f"or list it in {LABELS}"
            )
            reading.fault(name, TrellisError(told))
    for sub in subfolders(folder):
        if not sides:
            yield from _labelled(sub, sub.name, "", reading)
        elif sub in sides:
            for label in subfolders(sub):
                yield from _labelled(label, f"{sub.name}/{label.name}", sub.name, reading)
        else:
            told = f"{at(sub)} is beside train/ and test/, and so in neither"
            reading.fault(sub.name, TrellisError(told))


def _labelled(folder: Path, name: str, side: str, reading: Reading) -> Iterator[Listed]:
    """The recordings in the folder of one label."""
    files = names(folder)
    if not files:
        reading.fault(name, TrellisError(f"{at(folder)}: a label without recordings"))
    for file in files:
        if os.path.isdir(folder / file):
            told = f"{at(folder / file)} is a folder; {shown(name)}/ should hold recordings alone"
            reading.fault(f"{name}/{file}", TrellisError(told))
        elif not _is_recording(file):
            told = f"{at(folder / file)} is no recording; those end in {', '.join(KINDS)}"
            reading.fault(f"{name}/{file}", TrellisError(told))
        else:
            yield Listed(f"{name}/{file}", folder.name, side)


def _files(folder: Path, depth: int, prefix: str = "") -> Iterator[str]:
    """Names of the recordings within a folder; so deep and no deeper, whatever links do."""
    for name in names(folder):
        if os.path.isdir(folder / name):
            if depth > 1:
                yield from _files(folder / name, depth - 1, f"{prefix}{name}/")
        elif _is_recording(name) and (prefix or name != LABELS):
            yield prefix + name


def _is_recording(name: str) -> bool:
    return name.lower().endswith(KINDS)
