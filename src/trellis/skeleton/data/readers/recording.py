"""Read one recording from one file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....errors import TrellisError
from ..dataset import Frames
from ..layouts import Layout
from .npz import checked, joint_names, read_arrays, recordings
from .text import (
    LONGEST,  # fmt: skip
    SPACE,  # fmt: skip
    at,  # fmt: skip
    brief,  # fmt: skip
    flat,  # fmt: skip
    is_number,  # fmt: skip
    json_frames,
    numbers,  # fmt: skip
    points,  # fmt: skip
    read_json,
    read_lines,  # fmt: skip
    separator,  # fmt: skip
    split_cells,  # fmt: skip
)

UNUSED = ("", "frame", "time", "timestamp", "t", "index")  # columns without coordinates
MOST_UNUSED = 8
MOST_FRAMES = 1_000_000
_COLUMN = re.compile(r"(.+)_([xyzXYZ])", re.ASCII | re.DOTALL)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Frames, and their joints if the file names them, at the place ``named``."""

    frames: Frames
    joints: tuple[str, ...] | None = None
    named: str = ""


def read_recording(path: str | Path, layout: Layout) -> Frames:
    """Read one recording, its joints in the order of the layout.

    Args:
        path: The file. ``.csv`` and ``.txt`` have one frame per row: columns ``joint_x, joint_y,
            joint_z`` under a header, in any order, or plain numbers in the layout's order, with
            or without a frame number first. Without z, joints lie in a plane, z = 0. ``.npz`` holds an array ``frames`` of one recording
            and, optionally, ``joints``, their names in its order. ``.json`` holds lists of
            frames, alone or as ``skeletons``.
        layout: The joints of the recording.

    Returns:
        The frames, (frames, joints, 3), in float32.

    Raises:
        TrellisError: If the file cannot be read, or its joints are not those of the layout.

    >>> import tempfile
    >>> arm = Layout("arm", ("shoulder", "hand"), parents=(-1, 0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "wave.csv")
    ...     _ = path.write_text("hand_x,hand_y,hand_z,shoulder_x,shoulder_y,shoulder_z\\n1,2,3,4,5,6\\n")
    ...     read_recording(path, arm)
    array([[[4., 5., 6.],
            [1., 2., 3.]]], dtype=float32)
    """  # noqa: E501  (a header is one line)
    path = Path(path)
    kind = path.suffix.lower()
    if kind == ".npz":
        return arranged(path, _read_npz(path, layout), layout)
    if kind == ".json":
        value = read_json(path)
        value = value.get("skeletons") if isinstance(value, dict) else value
        return json_frames(path, value, layout.joints)
    return arranged(path, read_table(path, len(layout.joints)), layout)


def csv_text(frames: Frames, joints: Sequence[str]) -> str:
    """Return the text that `read_recording` reads to the same frames, to the bit.

    Joints whose names no cell can hold (a line break) are not named; their order remains.

    >>> print(csv_text(np.array([[[0.1, 2, 3]]], np.float32), ["left hand"]), end="")
    "left hand_x","left hand_y","left hand_z"
    0.1,2.0,3.0
    """
    lines = [",".join(map(str, row)) for row in frames.reshape(len(frames), -1)]
    cells = [f"{joint}_{axis}" for joint in joints for axis in "xyz"]
    if not any(set(name) & set("\r\n\0") or name != name.strip(SPACE) for name in joints):
        special = re.compile('[,;"# \t\ufeff]')
        quoted = [f'"{cell.replace(_QUOTE, 2 * _QUOTE)}"' if special.search(cell) else cell
                  for cell in cells]  # fmt: skip
        lines.insert(0, ",".join(quoted))
    return "\n".join([*lines, ""])


_QUOTE = '"'


def _read_npz(path: Path, layout: Layout) -> Recorded:
    arrays = read_arrays(path, ("frames",))
    frames = arrays["frames"]
    if frames.ndim in (3, 4) and frames.shape[-1] == 2:
        frames = arrays["frames"] = flat(frames)
    if "lengths" in arrays or frames.ndim == 4:
        count = arrays["lengths"].size if "lengths" in arrays else len(frames)
        if count != 1:
            raise TrellisError(
                f"{at(path)}: expected one recording, got {count:,}; write --data npz:{at(path)} "
                "to test a model on all of them, or save one alone, its frames as 'frames' and "
                "no 'lengths'"
            )
        [frames] = recordings(path, {"lengths": np.array(frames.shape[1:2]), **arrays})
    count = frames.shape[1] if frames.ndim == 3 and "joints" in arrays else len(layout.joints)
    if frames.shape[1:] != (count, 3) or frames.dtype.kind not in "fiu":
        raise TrellisError(
            f"{at(path)}: expected 'frames' of shape (frames, {count}, 3), got {frames.dtype} of "
            f"shape {frames.shape}"
        )
    names = tuple(joint_names(path, arrays, count) or ())
    found = checked(path, "the recording", frames, names or layout.joints)
    return Recorded(found, names or None, f"{at(path)}: 'joints'")


def read_table(path: Path, joints: int | None = None) -> Recorded:
    """Read rows of numbers, with or without a header; ``joints`` is their count, if known."""
    lines = read_lines(path)
    long = next((n for n, line in enumerate(lines, 1) if _is_long(line)), None)
    if long is not None:
        raise TrellisError(f"{at(path, long)}: the line has more than {LONGEST:,} bytes")
    rows = [(n, line) for n, line in enumerate(lines, 1) if not _is_blank(line)]
    if not rows:
        raise TrellisError(f"{at(path)} is empty")
    first, line = rows[0]
    head, mark = split_cells(line), separator(line)
    if any(is_number(cell, mark) for cell in head):
        return _unnamed(path, rows, len(head), joints)
    names, columns = _columns(at(path, first), head)
    what = f"as many as the header has: {len(head)}"
    values, places = _values(path, rows[1:], len(head), what)
    return Recorded(points(path, values[:, columns], names, places), names, at(path, first))


def _unnamed(path: Path, rows: list[tuple[int, str]], width: int, joints: int | None) -> Recorded:
    if joints is None:
        if width % 3:
            raise TrellisError(
                f"{at(path, rows[0][0])}: expected x y z of some joints, got {width} numbers; name "
                "the columns joint_x,joint_y,joint_z in a header (and a frame number 'frame'), or "
                "add a layout.json"
            )
        joints = width // 3
    spatial = width in (3 * joints, 3 * joints + 1)
    axes = 2 if not spatial and width in (2 * joints, 2 * joints + 1) else 3
    numbered = int(width == axes * joints + 1)
    what = f"{' '.join('xyz'[:axes])} of {joints} joints"
    values, places = _values(path, rows, numbered + axes * joints, what)
    labels = [f"joint {number}" for number in range(joints)]
    return Recorded(points(path, values[:, numbered:], labels, places))


def _values(
    path: Path, rows: list[tuple[int, str]], columns: int, what: str
) -> tuple[NDArray[np.float64], list[int]]:
    if not rows:
        raise TrellisError(f"{at(path)} has a header and no frames")
    if len(rows) > MOST_FRAMES:
        raise TrellisError(
            f"{at(path)}: expected at most {MOST_FRAMES:,} frames, got {len(rows):,}"
        )
    places = [number for number, _ in rows]
    return numbers(path, [line for _, line in rows], columns, what, places), places


def _is_long(line: str) -> bool:
    return len(line) > LONGEST // 4 and len(line.encode()) > LONGEST


def _is_blank(line: str) -> bool:
    """Return whether a line is blank or a comment."""
    line = line.lstrip(SPACE)
    return not line or line[0] == "#"


def arranged(path: Path, recorded: Recorded, layout: Layout) -> Frames:
    """Return the frames with the joints in the layout's order."""
    if recorded.joints is None:
        if recorded.frames.shape[1] != len(layout.joints):
            raise TrellisError(
                f"{at(path)}: expected {len(layout.joints)} joints, got {recorded.frames.shape[1]}"
            )
        return recorded.frames
    for one, others, told in (
        (layout.joints, recorded.joints, "does not name"),
        (recorded.joints, layout.joints, "names unknown joints:"),
    ):
        if missing := [name for name in one if name not in others]:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise TrellisError(
                f"{recorded.named} {told} {', '.join(map(brief, missing[:3]))}{more}"
            )
    order = [recorded.joints.index(name) for name in layout.joints]
    return np.ascontiguousarray(recorded.frames[:, order])


def _columns(place: str, head: list[str | None]) -> tuple[tuple[str, ...], list[int]]:
    """Return the joints that a header names, and the columns of their x y z."""
    places: dict[str, dict[str, int]] = {}
    unused = 0
    for number, name in enumerate(head):
        if name is None:
            raise TrellisError(
                f"{place}: the quotes in column {number + 1} are not around all of it"
            )
        if name.lower() in UNUSED:
            unused += 1
            continue
        match = _COLUMN.fullmatch(name)
        if match is None:
            raise TrellisError(
                f"{place}: unknown column {brief(name)}; expected joint_x, joint_y, joint_z"
            )
        axes = places.setdefault(match[1], {})
        if match[2].lower() in axes:
            raise TrellisError(f"{place}: duplicate column {brief(name)}")
        axes[match[2].lower()] = number
    if not places:
        raise TrellisError(f"{place}: no joints; expected columns such as joint_x")
    if unused > MOST_UNUSED:
        told = f"expected at most {MOST_UNUSED} columns without coordinates, got {unused}"
        raise TrellisError(f"{place}: {told}")
    wanted = "xyz" if any("z" in axes for axes in places.values()) else "xy"
    for joint, axes in places.items():
        if missing := sorted(set(wanted) - set(axes)):
            name = brief(f"{joint}_{missing[0]}")
            raise TrellisError(f"{place}: the joint {brief(joint)} has no column {name}")
    return tuple(places), [places[joint][axis] for joint in places for axis in wanted]
