"""Read text, tables of numbers, JSON and layouts, with errors that name the file and the line."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import TrellisError
from ....limits import LARGEST_TEXT, read_limited
from ..dataset import Frames
from ..layouts import LAYOUTS, Layout

LARGEST = 1e9  # largest coordinate: float32 can still square it
LONGEST = 1 << 20  # most bytes of a line
SPACE = " \t"  # around cells, and between them if a line has neither ; nor ,
_DIGITS = 63  # most characters of a number
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PLAIN = re.compile(r"[-+.,;eE0-9 \t\n]*")  # lines that numpy reads as we do
_LONG = re.compile(rf"[-+.eE0-9]{{{_DIGITS + 1}}}")
_SPACED = re.compile(r'(?:[^ \t"]|"[^"]*(?:"|$))+')


def shown(text: object) -> str:
    """Return a name to print, escaped if it holds characters that a terminal would act on.

    >>> shown("walk/3.csv"), shown("walk\\x1b[2J")
    ('walk/3.csv', "'walk\\\\x1b[2J'")
    """
    text = str(text)
    return text if text.isprintable() else ascii(text)


def at(path: Path, line: int | None = None) -> str:
    """Return ``file`` or ``file:line``, the start of every message about a file."""
    return shown(path) if line is None else f"{shown(path)}:{line}"


def read_bytes(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """Read a regular file of at most ``most`` bytes."""
    try:
        return read_limited(path, most, name=at(path))
    except FileNotFoundError:
        raise TrellisError(f"file not found: {at(path)}") from None


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file, with or without BOM; blank lines at the end are dropped."""
    content = read_bytes(path)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TrellisError(
            f"{at(path, 1)}: expected UTF-8 text, got UTF-16; save the file as UTF-8"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TrellisError(f"{at(path, line)}: invalid UTF-8 text ({error.reason})") from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip(SPACE):
        lines.pop()
    if not lines:
        raise TrellisError(f"{at(path)} is empty")
    return lines


def separator(line: str) -> str | None:
    """Return the separator of a line, outside quotes: ``;``, ``,``, or None for white space.

    >>> separator("1;2,5"), separator("1, 2"), separator("1 2"), separator('"a;b" 2')
    (';', ',', None, None)
    """
    if '"' in line:
        line = "".join(line.split('"')[::2])
    return ";" if ";" in line else "," if "," in line else None


def split_cells(line: str) -> list[str | None]:
    """Split a line that is not blank; a cell is None if its quotes are not around all of it.

    The grammar is in docs/guides/recordings.md; ``frame.h`` implements it in C.

    >>> split_cells("1, 2 ,"), split_cells('"left hand_x"  y'), split_cells('a"b"')
    (['1', '2'], ['left hand_x', 'y'], [None])
    """
    mark = separator(line)
    line = line.strip(SPACE)
    if mark is None:
        cells = _SPACED.findall(line)
    elif '"' in line:
        cells, pieces = [""], line.split('"')
        for number, piece in enumerate(pieces):
            inside = number % 2 == 1
            first, *later = [piece] if inside else piece.split(mark)
            cells[-1] += ('"' if number else "") + first
            cells += later
    else:
        cells = line.split(mark)
    cells = [cell.strip(SPACE) for cell in cells]
    if mark is not None and not cells[-1]:
        cells.pop()  # one separator may end the line
    return [_unquoted(cell) if '"' in cell else cell for cell in cells]


def _unquoted(cell: str) -> str | None:
    inner = cell[1:-1]
    whole = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.strip(SPACE).replace('""', '"') if whole else None


def is_number(cell: str | None, mark: str | None) -> bool:
    """Return whether a cell is a number. Between semicolons a comma is the decimal point."""
    if cell is None or len(cell.encode()) > _DIGITS:
        return False
    return bool(_NUMBER.fullmatch(cell.replace(",", ".") if mark == ";" else cell))


def numbers(
    path: Path,
    lines: Sequence[str],
    columns: int | None,
    what: str,
    places: Sequence[int] | None = None,
) -> NDArray[np.float64]:
    """Parse lines of ``columns`` numbers each, as (lines, columns).

    ``what`` describes the numbers in messages, and ``places`` are the line numbers, from 1. Cells
    are separated by commas, semicolons or white space; one separator may end a line. Between
    semicolons a comma is the decimal point.

    >>> numbers(Path("a.csv"), ["1,5;2", "3;4"], 2, "x and y")
    array([[1.5, 2. ],
           [3. , 4. ]])
    """
    quick = _quick(lines)
    if quick is not None and quick.shape[1] == (columns or quick.shape[1]):
        return quick
    expected = columns or len(split_cells(lines[0]))
    return np.array(
        [
            _row(at(path, number), line, expected, what)
            for number, line in zip(places or range(1, len(lines) + 1), lines, strict=True)
        ],
        np.float64,
    )


def _quick(lines: Sequence[str]) -> NDArray[np.float64] | None:
    """Parse with numpy, which is far faster, or return None if its grammar could differ."""
    text = "\n".join(lines)
    mark = separator(lines[0])
    if not _PLAIN.fullmatch(text) or any(separator(line) != mark for line in lines):
        return None
    if mark is not None:
        lines = [line.strip().removesuffix(mark) for line in lines]
    if mark == ";":
        lines, text = [line.replace(",", ".") for line in lines], text.replace(",", ".")
    if _LONG.search(text) or not all(map(str.strip, lines)):
        return None
    try:
        found = np.loadtxt(lines, np.float64, comments=None, delimiter=mark, ndmin=2)
    except ValueError:
        return None
    return found if len(found) == len(lines) and bool(np.isfinite(found).all()) else None


def _row(place: str, line: str, expected: int, what: str) -> list[float]:
    """Parse one line; raise with the column that is wrong."""
    cells = split_cells(line) if line.strip(SPACE) else []
    mark = separator(line)
    if not cells:
        raise TrellisError(f"{place}: expected {expected} numbers ({what}), got a blank line")
    values = []
    for column, cell in enumerate(cells, 1):
        if cell == "":
            raise TrellisError(f"{place}: the cell in column {column} is empty; expected {what}")
        if cell is None:
            raise TrellisError(f"{place}: the quotes in column {column} are not around all of it")
        number = is_number(cell, mark)
        value = float(cell.replace(",", ".")) if number else math.nan
        if not math.isfinite(value):
            finite = not number and cell.lstrip("+-").lower() not in ("nan", "inf", "infinity")
            kind = "a number" if finite else "a finite number"
            raise TrellisError(f"{place}: expected {kind} in column {column}, got {brief(cell)}")
        values.append(value)
    if len(cells) != expected:
        raise TrellisError(f"{place}: expected {expected} numbers ({what}), got {len(cells)}")
    return values


def brief(text: str) -> str:
    """Quote a piece of a file, at most 40 characters of it.

    >>> brief("y" * 100)
    "'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy...'"
    """
    return ascii(text if len(text) <= 40 else text[:40] + "...")


def points(
    path: Path,
    rows: NDArray[np.float64],
    joints: Sequence[str],
    places: Sequence[int] | None = None,
) -> NDArray[np.float32]:
    """Reshape (frames, joints * 3) to (frames, joints, 3); raise if a coordinate is too large.

    Rows of joints * 2 numbers are x and y; z is then 0.
    """
    if rows.shape[1] == 2 * len(joints):
        rows = flat(rows.reshape(len(rows), len(joints), 2)).reshape(len(rows), -1)
    far = np.abs(rows) > LARGEST
    if far.any():
        row, column = map(int, np.argwhere(far)[0])
        place = at(path, places[row] if places else row + 1)
        raise TrellisError(
            f"{place}: {'xyz'[column % 3]} of {joints[column // 3]!r} is {rows[row, column]:g}; "
            f"expected coordinates within {LARGEST:g}"
        )
    return rows.astype(np.float32).reshape(len(rows), len(joints), 3)


def flat(points: NDArray[Any]) -> NDArray[Any]:
    """Return points in two dimensions, (…, 2), in space, (…, 3), with z = 0.

    >>> flat(np.array([[1.0, 2.0]]))
    array([[1., 2., 0.]])
    """
    return np.concatenate([points, np.zeros_like(points[..., :1])], axis=-1)


def fixed_frames(path: Path, joints: Sequence[str], *, numbered: bool) -> NDArray[np.float32]:
    """Read x, y, z of every joint on each line, after a frame number if ``numbered``."""
    what = f"{'the frame number, then ' if numbered else ''}x y z of {len(joints)} joints"
    rows = numbers(path, read_lines(path), numbered + 3 * len(joints), what)
    return points(path, rows[:, int(numbered) :], joints)


# Folders that were unpacked somewhere.


Test = Callable[[Path], bool]


def names(folder: Path) -> list[str]:
    """List a folder, sorted, without hidden files and the leftovers of archivers."""
    try:
        found = os.listdir(folder)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TrellisError(f"the folder {at(folder)} cannot be read: {reason}") from None
    return sorted(name for name in found if not name.startswith((".", "__MACOSX")))


def subfolders(folder: Path) -> list[Path]:
    """List the folders in a folder, sorted; links to folders are followed once."""
    return [folder / name for name in names(folder) if os.path.isdir(folder / name)]


def find(path: Path, inside: Iterable[str], fits: Test, expected: str) -> Path:
    """Find the one folder that ``fits``: ``path``, one of ``inside`` it, or one level deeper.

    Users name the folder they unpacked into, the data set's own, or the one above.
    """
    if not os.path.exists(path):
        raise TrellisError(f"folder not found: {at(path)}")
    if not os.path.isdir(path):
        raise TrellisError(f"{at(path)}: expected {expected}, got a file")
    inside, deeper = tuple(inside), subfolders(path)
    for level in (
        [path],
        [path / name for name in inside],
        deeper,
        [folder / name for folder in deeper for name in inside],
    ):
        found = [folder for folder in level if os.path.isdir(folder) and fits(folder)]
        if len(found) > 1:
            both = " and ".join(shown(folder.relative_to(path)) for folder in found[:2])
            raise TrellisError(f"{at(path)} holds both {both}; name the one to read")
        if found:
            return found[0]
    raise TrellisError(f"{at(path)}: expected {expected}; it holds {_some(path)}")


def _some(folder: Path) -> str:
    found = names(folder)
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return (", ".join(map(shown, found[:5])) + more) or "nothing"


def beside(name: str, *folders: Path) -> Path:
    """Return the file of that name in the first of ``folders`` that has it."""
    for folder in folders:
        if os.path.lexists(folder / name):
            return folder / name
    places = ", ".join(dict.fromkeys(at(folder) for folder in folders))
    raise TrellisError(f"{name} not found in {places}")


# Layouts of your own recordings: from joint names or ``layout.json``; recordings in JSON.


# Recordings as nested lists in JSON.


def read_json(path: Path) -> Any:
    """Return what a JSON file holds."""
    content = read_bytes(path)
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise TrellisError(f"{at(path)}: invalid UTF-8 text ({error.reason})") from None
    except json.JSONDecodeError as error:
        raise TrellisError(f"{at(path, error.lineno)}: invalid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # numbers too long, nesting too deep
        raise TrellisError(f"{at(path)}: invalid JSON: {error}") from None


def json_frames(path: Path, value: Any, joints: Sequence[str]) -> Frames:
    """Convert nested lists to (frames, joints, 3); raise with the place that is wrong."""
    if not isinstance(value, list) or not value:
        raise TrellisError(f"{at(path)}: expected a list of frames, got {_kind(value)}")
    try:
        found = np.array(value)
    except (ValueError, OverflowError):  # ragged, or integers that are too large
        found = np.array(None)
    if found.shape == (len(value), len(joints), 2) and found.dtype.kind in "if":
        found = flat(found)
    whole = found.shape == (len(value), len(joints), 3) and found.dtype.kind in "if"
    if whole and (np.abs(found) <= LARGEST).all():  # false for NaN and infinity
        return found.astype(np.float32)
    for number, frame in enumerate(value):
        place = f"{at(path)}: frame {number}"
        if not isinstance(frame, list) or len(frame) != len(joints):
            raise TrellisError(f"{place}: expected {len(joints)} joints, got {_kind(frame)}")
        for name, point in zip(joints, frame, strict=True):
            if not isinstance(point, list) or len(point) != 3:
                raise TrellisError(f"{place}, {name!r}: expected x, y, z, got {_kind(point)}")
            for coordinate in point:
                number_like = isinstance(coordinate, int | float)
                if (
                    isinstance(coordinate, bool)
                    or not number_like
                    or not (abs(coordinate) <= LARGEST)
                ):
                    raise TrellisError(
                        f"{place}, {name!r}: expected a finite number within {LARGEST:g}, got "
                        f"{brief(repr(coordinate))}"
                    )
    raise TrellisError(f"{at(path)}: expected frames x {len(joints)} joints x 3 numbers")


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return {dict: "an object", str: "a string", type(None): "null"}.get(type(value), "a number")


KEYS = ("joints", "parents", "roots", "mirror", "body")
NONE = (None, "", "-1")  # no parent; numpy turns -1 among names into a string


def own_layout(
    joints: Sequence[str],
    parents: Sequence[Any] | None = None,
    roots: Sequence[Any] = (0,),
    mirror: Sequence[Any] | None = None,
    body: Sequence[Any] | None = None,
) -> Layout:
    """Make a layout from joint names; everything else is by name or number.

    None, "" and −1 mean no parent. Without parents there are no bones, unless the names are those
    of a known layout.

    >>> own_layout(["shoulder", "hand"], [None, "shoulder"]).bones
    ((0, 1),)
    >>> own_layout(["shoulder", "hand"], ["", "shoulder"]).bones
    ((0, 1),)
    >>> from trellis.skeleton.data.layouts import MEDIAPIPE_HAND
    >>> own_layout(MEDIAPIPE_HAND.joints).name
    'mediapipe-hand'
    """
    joints = tuple(joints)
    check_names(joints)
    if parents is None:
        for known in LAYOUTS.values():
            if known.joints == joints:
                return known
        parents = [-1] * len(joints)

    def number(joint: Any) -> int:
        if joint in NONE and joint not in joints:
            return -1
        if isinstance(joint, int) and not isinstance(joint, bool):
            return joint
        if joint in joints:
            return joints.index(joint)
        raise TrellisError(f"unknown joint {brief(str(joint))}; known: {', '.join(joints)}")

    return Layout(
        "own",
        joints,
        tuple(map(number, parents)),
        tuple(map(number, roots)),
        None if mirror is None else tuple(map(number, mirror)),
        None if body is None else tuple(map(number, body)),
    )


def check_names(joints: Sequence[str]) -> None:
    """Raise if a joint has no name, or two joints have the same."""
    if "" in joints:
        raise TrellisError(f"joint {joints.index('')} has no name")
    for place, name in enumerate(joints):
        if name in joints[:place]:
            raise TrellisError(f"the joint {brief(name)} is named twice")


def read_layout(path: Path) -> Layout:
    """Read a file such as ``{"joints": ["shoulder", "hand"], "parents": [null, "shoulder"]}``.

    ``roots``, ``mirror`` and ``body`` are optional. ``{"layout": "mediapipe-hand"}`` names a known
    layout.
    """
    given = read_json(path)
    if isinstance(given, dict) and set(given) == {"layout"}:
        known = LAYOUTS.get(str(given["layout"]))
        if known is None:
            raise TrellisError(
                f"{at(path)}: unknown layout {brief(str(given['layout']))}; known: "
                f"{', '.join(LAYOUTS)}"
            )
        return known
    if not isinstance(given, dict) or "joints" not in given or not set(given) <= set(KEYS):
        raise TrellisError(
            f"{at(path)}: expected an object with 'joints' and, optionally, 'parents', 'roots', "
            "'mirror' and 'body', or one with 'layout' alone"
        )
    for key, value in given.items():
        if not isinstance(value, list) or not all(
            isinstance(item, str | int | None) and not isinstance(item, bool) for item in value
        ):
            raise TrellisError(f"{at(path)}: expected a list of joints as {key!r}")
    if not all(isinstance(name, str) for name in given["joints"]):
        raise TrellisError(f"{at(path)}: expected a list of names as 'joints'")
    try:
        return own_layout(**given)
    except TrellisError as error:
        raise TrellisError(f"{at(path)}: {error}") from None
