"""Reading text that somebody else wrote: whole files, and tables of numbers in them."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....errors import TrellisError
from ....limits import LARGEST_TEXT, read_limited

LARGEST = 1e9  # float32 can still square it; nobody's joint is that far away, in any unit
LONGEST = 1 << 20  # bytes of a line
SPACE = " \t"  # what is around cells, and between them where neither ; nor , is
_DIGITS = 63  # characters of a number
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PLAIN = re.compile(r"[-+.,;eE0-9 \t\n]*")  # what most files are, and numpy reads as we do
_LONG = re.compile(rf"[-+.eE0-9]{{{_DIGITS + 1}}}")
_SPACED = re.compile(r'(?:[^ \t"]|"[^"]*(?:"|$))+')


def shown(text: object) -> str:
    """A name to print: as it is, or quoted where it holds what a terminal would act on.

    >>> shown("walk/3.csv"), shown("walk\\x1b[2J")
    ('walk/3.csv', "'walk\\\\x1b[2J'")
    """
    text = str(text)
    return text if text.isprintable() else ascii(text)


def at(path: Path, line: int | None = None) -> str:
    """``file`` or ``file:line``, the beginning of every message about a file."""
    return shown(path) if line is None else f"{shown(path)}:{line}"


def read_bytes(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """All of a file that is a file, and no longer than ``most`` bytes: a pipe or a device would
    keep us waiting for ever."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "is a folder" if stat.S_ISDIR(mode) else "is no ordinary file"
            raise TrellisError(f"{at(path)} {what}; a file with a recording was expected")
        return read_limited(path, most)
    except FileNotFoundError:
        raise TrellisError(f"there is no file {at(path)}") from None
    except TrellisError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name no file can have
        reason = getattr(error, "strerror", None) or error
        raise TrellisError(f"{at(path)} cannot be read: {reason}") from error


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, with or without BOM, whatever ends them; none blank at the end."""
    content = read_bytes(path)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TrellisError(f"{at(path, 1)}: this is UTF-16 text; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TrellisError(f"{at(path, line)}: this is not UTF-8 text ({error.reason})") from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip(SPACE):
        lines.pop()
    if not lines:
        raise TrellisError(f"{at(path)} is empty")
    return lines


def separator(line: str) -> str | None:
    """What stands between the cells of a line, outside of quotes: a semicolon, a comma, or (None)
    white space.

    >>> separator("1;2,5"), separator("1, 2"), separator("1 2"), separator('"a;b" 2')
    (';', ',', None, None)
    """
    if '"' in line:
        line = "".join(line.split('"')[::2])
    return ";" if ";" in line else "," if "," in line else None


def split_cells(line: str) -> list[str | None]:
    """The cells of a line that is not blank; None for one whose quotes are not around all of it.

    The grammar is in docs/skeletons.md; ``frame.h`` is the same in C.

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
        cells.pop()  # one separator may stand at the end
    return [_unquoted(cell) if '"' in cell else cell for cell in cells]


def _unquoted(cell: str) -> str | None:
    inner = cell[1:-1]
    whole = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.strip(SPACE).replace('""', '"') if whole else None


def is_number(cell: str | None, mark: str | None) -> bool:
    """Whether a cell is one, however large. Between semicolons a comma is a decimal comma."""
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
    """Lines of ``columns`` numbers each, as (lines, columns); ``what`` says what those should be.

    ``places`` are their numbers in the file (from 1 on). Cells stand between commas, semicolons or
    white space; one separator at the end of a line is allowed. Between semicolons a comma is a
    decimal comma, as spreadsheets in half of the world write it.

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
    """By numpy, which reads millions a second, where that is sure to be the same."""
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
    """The numbers of one line, or what is wrong with it."""
    cells = split_cells(line) if line.strip(SPACE) else []
    mark = separator(line)
    if not cells:
        raise TrellisError(f"{place}: this line is blank; {expected} numbers belong here ({what})")
    values = []
    for column, cell in enumerate(cells, 1):
        if cell == "":
            raise TrellisError(f"{place}: the cell in column {column} is empty ({what})")
        if cell is None:
            raise TrellisError(f"{place}: the quotes in column {column} are not around all of it")
        number = is_number(cell, mark)
        value = float(cell.replace(",", ".")) if number else math.nan
        if not math.isfinite(value):
            finite = not number and cell.lstrip("+-").lower() not in ("nan", "inf", "infinity")
            kind = "no number" if finite else "not finite"
            raise TrellisError(f"{place}: {brief(cell)} in column {column} is {kind}")
        values.append(value)
    if len(cells) != expected:
        raise TrellisError(f"{place}: {len(cells)} numbers where {expected} are expected ({what})")
    return values


def brief(text: str) -> str:
    """A quoted piece of somebody's file, short enough for one line.

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
    """(frames, joints * 3) of finite numbers -> (frames, joints, 3), none absurdly far away."""
    far = np.abs(rows) > LARGEST
    if far.any():
        row, column = map(int, np.argwhere(far)[0])
        place = at(path, places[row] if places else row + 1)
        raise TrellisError(
            f"{place}: {'xyz'[column % 3]} of {joints[column // 3]!r} is {rows[row, column]:g}; "
            f"a coordinate beyond {LARGEST:g} is no position of a joint"
        )
    return rows.astype(np.float32).reshape(len(rows), len(joints), 3)


def fixed_frames(path: Path, joints: Sequence[str], *, numbered: bool) -> NDArray[np.float32]:
    """A file with x, y, z of every joint on each line, after a frame number where ``numbered``."""
    what = f"{'the frame number, then ' if numbered else ''}x y z of {len(joints)} joints"
    rows = numbers(path, read_lines(path), numbered + 3 * len(joints), what)
    return points(path, rows[:, int(numbered) :], joints)


# Finding one's way in folders that people unpacked somewhere.


Test = Callable[[Path], bool]


def names(folder: Path) -> list[str]:
    """What is in a folder, sorted, without hidden files and what archivers leave behind."""
    try:
        found = os.listdir(folder)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TrellisError(f"the folder {at(folder)} cannot be read: {reason}") from None
    return sorted(name for name in found if not name.startswith((".", "__MACOSX")))


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, sorted by name; links to folders are followed, once."""
    return [folder / name for name in names(folder) if os.path.isdir(folder / name)]


def find(path: Path, inside: Iterable[str], fits: Test, expected: str) -> Path:
    """The one folder that ``fits``: ``path``, one of ``inside`` it, or the same a level further in.

    People name the folder they unpacked into, the data set's own, or the one above.
    """
    if not os.path.exists(path):
        raise TrellisError(f"there is no folder {at(path)}")
    if not os.path.isdir(path):
        raise TrellisError(f"{at(path)} is a file; {expected} was expected")
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
            raise TrellisError(f"{at(path)} holds both {both}: name the one to read")
        if found:
            return found[0]
    raise TrellisError(f"{at(path)} is not what was expected: {expected}. It holds {_some(path)}")


def _some(folder: Path) -> str:
    found = names(folder)
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return (", ".join(map(shown, found[:5])) + more) or "nothing"


def beside(name: str, *folders: Path) -> Path:
    """The file of that name in the first of ``folders`` that has it."""
    for folder in folders:
        if os.path.lexists(folder / name):
            return folder / name
    places = ", ".join(dict.fromkeys(at(folder) for folder in folders))
    raise TrellisError(f"there is no {name} in {places}")
