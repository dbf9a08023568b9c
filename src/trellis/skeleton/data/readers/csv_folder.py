"""Your own recordings in a folder of CSV files: one recording per file, one frame per row.

The label is the name of the file's folder, ``walk/3.csv``, or is listed in ``labels.csv`` with the
columns file, label and, optionally, split (train or test). Folders ``train/`` and ``test/`` above
the labels are a split too. Without a split, halves are drawn (see `reader.drawn_halves`). Columns
are ``joint_x, joint_y, joint_z`` under a header, or plain numbers. An optional ``layout.json``
names joints, parents and roots (see `text.own_layout`).
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ....errors import TrellisError
from ..dataset import Frames, Skeletons
from ..layouts import Layout
from .reader import Entry, Reading, drawn_halves, register_reader, split
from .recording import Recorded, arranged, read_table
from .text import (
    at,
    brief,
    find,
    names,
    own_layout,
    read_layout,
    read_lines,
    separator,
    shown,
    subfolders,
)

# ``labels.csv``: the label of each recording, and its side of the split.


LABELS = "labels.csv"
SIDES = ("train", "test")
_HEAD = ("file", "label", "split")


@dataclass(frozen=True)
class Listed:
    """A recording, by its name within the folder; ``side`` is train, test, or empty."""

    name: str
    label: str
    side: str


def read_labels(folder: Path, reading: Reading, files: Iterable[str]) -> list[Listed]:
    """Read the list; a name that it repeats, or a file that it omits, is a fault."""
    path = folder / LABELS
    rows: dict[str, tuple[int, Listed]] = {}
    for number, row in _rows(path):
        try:
            listed = _listed(at(path, number), row)
            if listed.name in rows:
                told = f"{shown(listed.name)} is listed twice (see line {rows[listed.name][0]})"
                raise TrellisError(f"{at(path, number)}: {told}")
        except TrellisError as error:
            reading.fault(f"{LABELS}:{number}", error)
        else:
            rows[listed.name] = number, listed
    for name in files:
        if name not in rows:
            told = f"{at(path)} does not list {shown(name)}, which is in the folder"
            reading.fault(name, TrellisError(told))
    if any(listed.side for _, listed in rows.values()):
        for name, (number, listed) in list(rows.items()):
            if not listed.side:
                told = f"{shown(name)} has no side of the split; write train or test"
                reading.fault(name, TrellisError(f"{at(path, number)}: {told}"))
                del rows[name]
    return [listed for _, listed in rows.values()]


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    lines = read_lines(path)
    reader = csv.reader(lines, delimiter=separator(lines[0]) or ",", strict=True)
    before = 0
    try:
        for row in reader:
            number, before = before + 1, reader.line_num
            cells = [cell.strip() for cell in row]
            if any(cells) and not (number == 1 and tuple(map(str.lower, cells)) in _HEADS):
                yield number, cells
    except csv.Error as error:
        raise TrellisError(f"{at(path, before + 1)}: {error}") from None


_HEADS = (_HEAD, _HEAD[:2])


def _listed(place: str, cells: list[str]) -> Listed:
    if len(cells) not in (2, 3) or not all(cells[:2]):
        raise TrellisError(
            f"{place}: expected file,label or file,label,split, got {brief(','.join(cells))}"
        )
    name = PurePosixPath(cells[0].replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or not name.parts or "\0" in cells[0]:
        raise TrellisError(f"{place}: expected a file within this folder, got {brief(cells[0])}")
    side = cells[2].lower() if len(cells) == 3 else ""
    if side not in ("", *SIDES):
        raise TrellisError(f"{place}: expected train or test, got {brief(cells[2])}")
    if not side and name.parts[0] in SIDES:
        side = name.parts[0]
    return Listed(str(name), cells[1], side)


LAYOUT = "layout.json"
KINDS = (".csv", ".txt", ".tsv")


@register_reader("csv", protocols=("split",), about="a folder of your own CSV files")
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
    """Read the recordings of one layout: that of ``layout.json``, or the most frequent one."""
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
                f"{at(folder / name)} has no label; put it into a folder named after its label, "
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
            told = f"{at(sub)} lies beside train/ and test/; move it into one of them"
            reading.fault(sub.name, TrellisError(told))


def _labelled(folder: Path, name: str, side: str, reading: Reading) -> Iterator[Listed]:
    """Yield the recordings in the folder of one label."""
    files = names(folder)
    if not files:
        reading.fault(name, TrellisError(f"{at(folder)}: the label has no recordings"))
    for file in files:
        if os.path.isdir(folder / file):
            told = f"{at(folder / file)}: expected only recordings in {shown(name)}/, got a folder"
            reading.fault(f"{name}/{file}", TrellisError(told))
        elif not _is_recording(file):
            told = f"{at(folder / file)}: expected a recording, which ends in {', '.join(KINDS)}"
            reading.fault(f"{name}/{file}", TrellisError(told))
        else:
            yield Listed(f"{name}/{file}", folder.name, side)


def _files(folder: Path, depth: int, prefix: str = "") -> Iterator[str]:
    """Yield the names of recordings within a folder, at most ``depth`` folders deep."""
    for name in names(folder):
        if os.path.isdir(folder / name):
            if depth > 1:
                yield from _files(folder / name, depth - 1, f"{prefix}{name}/")
        elif _is_recording(name) and (prefix or name != LABELS):
            yield prefix + name


def _is_recording(name: str) -> bool:
    return name.lower().endswith(KINDS)
