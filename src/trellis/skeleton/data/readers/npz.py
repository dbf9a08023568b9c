"""Your own recordings in one ``.npz`` file of numpy.

===========  ====================================================================================
``frames``   (all frames, joints, 3), recording after recording; or, padded at the end,
             (recordings, time, joints, 3)
``lengths``  (recordings,): how many frames each has
``labels``   (recordings,): strings, or whole numbers
``classes``  optional: names of the classes; labels are then these names, or places among them
``test``     optional, (recordings,): which are to test on; otherwise halves are drawn, by the
             place of a recording within its class: add others behind it
``joints``   optional: their names
``parents``  optional, (joints,): names, "" for none, or numbers, -1 for none
``roots``    optional: names or numbers
``mirror``   optional: names or numbers
``body``     optional: names or numbers
===========  ====================================================================================
"""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ....errors import TrellisError
from ....limits import LARGEST, check_bytes
from ..dataset import Frames, Skeletons
from ..layouts import Layout
from .reader import FEWER, Entry, Reading, drawn_halves, register_reader, split
from .text import LARGEST as FARTHEST
from .text import at, brief, check_names, flat, own_layout, read_bytes

OF_LAYOUT = ("parents", "roots", "mirror", "body")
ARRAYS = ("frames", "lengths", "labels", "classes", "test", "joints", *OF_LAYOUT)

LARGEST_LIST = LARGEST >> 6  # bytes of an array that becomes a list
MOST_ITEMS = 1 << 22

Arrays = Mapping[str, NDArray[Any]]


@register_reader("npz", protocols=("split",), about="your own recordings in one .npz file")
def read(path: Path, protocol: str, reading: Reading) -> Skeletons:
    arrays = read_arrays(path, ("frames", "lengths", "labels"))
    pieces = recordings(path, arrays)
    layout = _layout(path, arrays, pieces[0].shape[1] if pieces else 0)
    names, labels = _labels(path, arrays, len(pieces))
    test = arrays.get("test")
    plain = test is None or (test.shape == (len(pieces),) and test.dtype.kind in "biuf")
    if test is not None and not (plain and np.isin(test, (0, 1)).all()):
        raise TrellisError(f"{at(path)}: expected true or false for each recording in 'test'")
    entries: list[Entry] = []
    places: Counter[int] = Counter()
    for number, label in enumerate(labels):
        if label is None:
            told = f"{at(path)}: the label of recording {number} is not in 'classes'"
            reading.fault(f"recording {number}", TrellisError(told))
        else:
            group = f"{names[label]} {places[label]}"  # counted before any is left out
            if test is not None:
                group = "test" if test[number] else "train"
            places[label] += 1
            entries.append(Entry(f"recording {number}", path, label, group))
    reading.labelled(names, entries, at(path))
    found = reading.frames(
        entries,
        lambda entry: checked(path, entry.name, pieces[int(entry.name.split()[1])], layout.joints),
    )
    return reading.result(
        found,
        names,
        layout,
        lambda groups, labels: (
            drawn_halves(groups, labels)
            if test is None
            else split("as given in 'test'", [group == "test" for group in groups])
        ),
    )


def read_arrays(path: Path, needed: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Those of the file's arrays that we know. Pickled objects are never loaded."""
    content = read_bytes(path, LARGEST)
    if not content:
        raise TrellisError(f"{at(path)} is empty")
    if not content.startswith(b"PK"):
        raise TrellisError(
            f"{at(path)} is no .npz file, which is a zip of arrays (pickles are never loaded); "
            "write one with numpy.savez(path, frames=..., lengths=..., labels=...)"
        )
    try:
        with zipfile.ZipFile(BytesIO(content)) as file:
            stored = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
            others = ", ".join(map(brief, stored))
            _check_sizes(path, [stored[name] for name in ARRAYS if name in stored])
            found = {
                name: _array(path, file, stored[name], name) for name in ARRAYS if name in stored
            }
    except TrellisError:
        raise
    except Exception as error:  # zip, zlib, numpy's headers: a broken file can raise anything
        raise TrellisError(
            f"{at(path)} cannot be read as an .npz file ({error}); write it with "
            "numpy.savez(path, frames=..., lengths=..., labels=...), and no objects in the arrays"
        ) from None
    for name in needed:
        if name not in found:
            raise TrellisError(f"{at(path)} has no array {name!r}; it has {others or 'no arrays'}")
    return found


def _check_sizes(path: Path, stored: Sequence[zipfile.ZipInfo]) -> None:
    """Check the sizes in the zip's directory, before any array is unpacked."""
    check_bytes(sum(info.file_size for info in stored), f"{at(path)}, unpacked", FEWER)


def _array(path: Path, file: zipfile.ZipFile, stored: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    """Read one array, after a check that its header asks for no more than the file holds."""
    if not stored.filename.endswith(".npy"):
        raise TrellisError(f"{at(path)}: expected {name!r} to be a numpy array")
    with file.open(stored) as member:
        version = npy.read_magic(member)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, kind = read(member)
    count = math.prod(shape)
    size = count * max(kind.itemsize, 1)
    if min(shape, default=0) < 0 or size > stored.file_size:
        raise TrellisError(
            f"{at(path)}: {name!r} claims to be {kind} of shape {shape}, expected at most the "
            f"{stored.file_size:,} bytes that it holds; write the file again with numpy.savez"
        )
    place = f"{at(path)}: {name!r}"
    if name == "frames":
        check_bytes(4 * count, place, FEWER)
    else:  # these become lists
        check_bytes(size, place, FEWER, LARGEST_LIST)
        if count > MOST_ITEMS:
            raise TrellisError(f"{place} is of shape {shape}, expected at most {MOST_ITEMS:,}")
    with file.open(stored) as member:
        return npy.read_array(member, allow_pickle=False)


def recordings(path: Path, arrays: Arrays) -> list[NDArray[Any]]:
    """Split ``frames`` into recordings, by ``lengths``."""
    frames, lengths = arrays["frames"], arrays["lengths"]
    if frames.ndim in (3, 4) and frames.shape[-1] == 2 and frames.dtype.kind in "fiu":
        frames = flat(frames)
    if frames.ndim not in (3, 4) or frames.shape[-1] != 3 or frames.dtype.kind not in "fiu":
        raise TrellisError(
            f"{at(path)}: expected 'frames' of shape (all frames, joints, 3) or, padded, "
            f"(recordings, time, joints, 3), got {_kind(frames)}"
        )
    if frames.shape[-2] == 0:
        raise TrellisError(f"{at(path)}: 'frames' is {_kind(frames)}; there are no joints")
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 0).any():
        raise TrellisError(f"{at(path)}: expected counts in 'lengths', got {_kind(lengths)}")
    sizes = [int(length) for length in lengths]
    if frames.ndim == 4:
        if len(sizes) != len(frames) or max(sizes, default=0) > frames.shape[1]:
            raise TrellisError(
                f"{at(path)}: 'lengths' must be {len(frames)} numbers up to {frames.shape[1]}, as "
                f"'frames' is {_kind(frames)}"
            )
        return [piece[:size] for piece, size in zip(frames, sizes, strict=True)]
    if sum(sizes) != len(frames):
        raise TrellisError(
            f"{at(path)}: 'lengths' add up to {sum(sizes)}, but 'frames' has {len(frames)}"
        )
    ends = np.cumsum([0, *sizes])
    return [frames[start:stop] for start, stop in pairwise(ends)]


def _layout(path: Path, arrays: Arrays, count: int) -> Layout:
    given = {key: _items(path, key, arrays[key]) for key in OF_LAYOUT if key in arrays}
    joints = joint_names(path, arrays, count) or [f"joint {number}" for number in range(count)]
    try:
        return own_layout(joints, **given)
    except TrellisError as error:
        raise TrellisError(f"{at(path)}: {error}") from None


def joint_names(path: Path, arrays: Arrays, count: int) -> list[str] | None:
    """Return the names of the ``count`` joints, or None if the file has none."""
    if "joints" not in arrays:
        return None
    joints = _items(path, "joints", arrays["joints"])
    if len(joints) != count or not all(isinstance(name, str) for name in joints):
        raise TrellisError(
            f"{at(path)}: expected {count} names in 'joints', one per joint of 'frames'"
        )
    try:
        check_names(joints)
    except TrellisError as error:
        raise TrellisError(f"{at(path)}: {error}") from None
    return joints


def _labels(path: Path, arrays: Arrays, count: int) -> tuple[list[str], list[int | None]]:
    """Return the names of the classes, and the index of each recording's class."""
    labels = _items(path, "labels", arrays["labels"])
    if len(labels) != count:
        raise TrellisError(
            f"{at(path)}: expected {count} 'labels', one per recording, got {len(labels)}"
        )
    if "classes" not in arrays:
        known = sorted(set(labels))
        places = {label: place for place, label in enumerate(known)}
        return [str(label) for label in known], [places[label] for label in labels]
    classes = [str(name) for name in _items(path, "classes", arrays["classes"])]
    if len(set(classes)) < len(classes):
        raise TrellisError(f"{at(path)}: 'classes' holds a name twice")
    places = {name: place for place, name in enumerate(classes)}
    if arrays["labels"].dtype.kind in "iu":
        places = {place: place for place in range(len(classes))}
    return classes, [places.get(label) for label in labels]


def _items(path: Path, name: str, array: NDArray[Any]) -> list[Any]:
    """Return the strings or integers of an array of one dimension."""
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise TrellisError(
            f"{at(path)}: expected {name!r} to be a list of strings or integers, got {_kind(array)}"
        )
    try:
        items = list(array.tolist())
        if array.dtype.kind == "S":
            return [item.decode() for item in items]
        if array.dtype.kind == "U":
            "".join(items).encode()  # lone surrogates cannot be printed
        return items
    except (ValueError, SystemError):  # numpy raises SystemError for an invalid character
        text = "UTF-8" if array.dtype.kind == "S" else "Unicode"
        raise TrellisError(f"{at(path)}: {name!r} is not {text} text") from None


def checked(path: Path, name: str, frames: NDArray[Any], joints: Sequence[str]) -> Frames:
    """Return (frames, joints, 3) in float32; raise if a number is not finite."""
    if len(frames) == 0:
        raise TrellisError(f"{at(path)}: {name} has no frames")
    with np.errstate(invalid="ignore", over="ignore"):
        points = frames.astype(np.float32, copy=False)
        bad = ~((points <= FARTHEST) & (points >= -FARTHEST))
    if bad.any():
        frame, joint, axis = map(int, np.argwhere(bad)[0])
        raise TrellisError(
            f"{at(path)}: {name}, frame {frame}, {'xyz'[axis]} of {joints[joint]!r} is "
            f"{frames[frame, joint, axis]}; expected a finite number within {FARTHEST:g}"
        )
    return points


def _kind(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"
