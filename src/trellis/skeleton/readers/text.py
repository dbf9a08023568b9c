"""Reading text that somebody else wrote: whole files, and tables of numbers in them."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import TrellisError
from ...limits import LARGEST_TEXT, read_limited

LARGEST = 1e9  # float32 can still square it; nobody's joint is that far away, in any unit
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


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
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise TrellisError(f"{at(path)} is empty")
    return lines


def separator(line: str) -> str | None:
    """What stands between the cells of a line: a semicolon, a comma, or (None) white space.

    >>> separator("1;2,5"), separator("1, 2"), separator("1 2")
    (';', ',', None)
    """
    return ";" if ";" in line else "," if "," in line else None


def numbers(
    path: Path, lines: Sequence[str], columns: int | None, what: str, first: int = 1
) -> NDArray[np.float64]:
    """Lines of ``columns`` numbers each, as (lines, columns); ``what`` says what those should be.

    ``lines[0]`` is the file's line number ``first``. Cells stand between commas, semicolons or
    white space; one separator at the end of a line is allowed. Between semicolons a comma is a
    decimal comma, as spreadsheets in half of the world write it.

    >>> numbers(Path("a.csv"), ["1,5;2", "3;4"], 2, "x and y")
    array([[1.5, 2. ],
           [3. , 4. ]])
    """
    mark = separator(lines[0])
    if mark is not None and any(line.rstrip().endswith(mark) for line in lines):
        lines = [line.rstrip().removesuffix(mark) for line in lines]
    if mark == ";":
        lines = [line.replace(",", ".") for line in lines]
    reason: object = "these are no rows of numbers"
    # numpy reads millions a second and tells little of what is wrong; then we look line by line.
    if all(map(str.strip, lines)):
        try:
            found = np.loadtxt(lines, np.float64, comments=None, delimiter=mark, ndmin=2)
            if found.shape == (len(lines), columns or found.shape[1]) and np.isfinite(found).all():
                return found
        except ValueError as error:
            reason = error
    expected = columns or len(lines[0].split(mark))
    for number, line in enumerate(lines, first):
        _check_line(at(path, number), line.split(mark) if line.strip() else [], expected, what)
    raise TrellisError(f"{at(path)}: {reason}")  # the two ways of reading disagree


def _check_line(place: str, cells: list[str], expected: int, what: str) -> None:
    if not cells:
        raise TrellisError(f"{place}: this line is blank; {expected} numbers belong here ({what})")
    for column, cell in enumerate(map(str.strip, cells), 1):
        if not cell:
            raise TrellisError(f"{place}: the cell in column {column} is empty ({what})")
        if _NUMBER.fullmatch(cell) and np.isfinite(float(cell)):
            continue
        kind = "no number"
        if cell.lstrip("+-").lower() in ("nan", "inf", "infinity") or _NUMBER.fullmatch(cell):
            kind = "not finite"
        raise TrellisError(f"{place}: {brief(cell)} in column {column} is {kind}")
    if len(cells) != expected:
        raise TrellisError(f"{place}: {len(cells)} numbers where {expected} are expected ({what})")


def brief(text: str) -> str:
    """A quoted piece of somebody's file, short enough for one line.

    >>> brief("y" * 100)
    "'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy...'"
    """
    return ascii(text if len(text) <= 40 else text[:40] + "...")


def points(
    path: Path, rows: NDArray[np.float64], joints: Sequence[str], first: int = 1
) -> NDArray[np.float32]:
    """(frames, joints * 3) of finite numbers -> (frames, joints, 3), none absurdly far away."""
    far = np.abs(rows) > LARGEST
    if far.any():
        row, column = np.argwhere(far)[0]
        raise TrellisError(
            f"{at(path, first + int(row))}: {'xyz'[column % 3]} of {joints[column // 3]!r} is "
            f"{rows[row, column]:g}; a coordinate beyond {LARGEST:g} is no position of a joint"
        )
    return rows.astype(np.float32).reshape(len(rows), len(joints), 3)


def fixed_frames(path: Path, joints: Sequence[str], *, numbered: bool) -> NDArray[np.float32]:
    """A file with x, y, z of every joint on each line, after a frame number where ``numbered``."""
    what = f"{'the frame number, then ' if numbered else ''}x y z of {len(joints)} joints"
    rows = numbers(path, read_lines(path), numbered + 3 * len(joints), what)
    return points(path, rows[:, int(numbered) :], joints)
