"""``labels.csv``: which recording has which label, and on which side of the split it is."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ...errors import TrellisError
from .reading import Reading
from .text import at, brief, read_lines, separator, shown

LABELS = "labels.csv"
SIDES = ("train", "test")
_HEAD = ("file", "label", "split")


@dataclass(frozen=True)
class Listed:
    """A recording by its name within the folder; ``side`` is train, test, or empty."""

    name: str
    label: str
    side: str


def read_labels(folder: Path, reading: Reading, files: Iterable[str]) -> list[Listed]:
    """What the list names, once each; ``files`` that it does not name are faults."""
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
                told = f"{at(path, number)}: {shown(name)} is to be neither trained nor tested on"
                reading.fault(name, TrellisError(told))
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
            f"{place}: {brief(','.join(cells))} is not file,label or file,label,split"
        )
    name = PurePosixPath(cells[0].replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or not name.parts or "\0" in cells[0]:
        raise TrellisError(f"{place}: {brief(cells[0])} is not a file within this folder")
    side = cells[2].lower() if len(cells) == 3 else ""
    if side not in ("", *SIDES):
        raise TrellisError(f"{place}: {brief(cells[2])} is no side of a split; train or test is")
    if not side and name.parts[0] in SIDES:
        side = name.parts[0]
    return Listed(str(name), cells[1], side)
