"""Recordings as nested lists in JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import TrellisError
from ..skeletons import Frames
from .text import LARGEST, at, brief, read_bytes


def read_json(path: Path) -> Any:
    """Whatever a JSON file holds."""
    try:
        return json.loads(read_bytes(path).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise TrellisError(f"{at(path)} is not UTF-8 text ({error.reason})") from None
    except json.JSONDecodeError as error:
        raise TrellisError(f"{at(path, error.lineno)}: this is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # numbers or nesting beyond all measure
        raise TrellisError(f"{at(path)} is not JSON that can be read: {error}") from None


def json_frames(path: Path, value: Any, joints: Sequence[str]) -> Frames:
    """Lists of frames, of joints, of x y z -> (frames, joints, 3), every number in its place."""
    if not isinstance(value, list) or not value:
        raise TrellisError(f"{at(path)}: {_kind(value)} where a list of frames is expected")
    try:
        found = np.array(value)
    except (ValueError, OverflowError):  # ragged, or integers without end
        found = np.array(None)
    whole = found.shape == (len(value), len(joints), 3) and found.dtype.kind in "if"
    if whole and (np.abs(found) <= LARGEST).all():  # which nothing that is not finite is
        return found.astype(np.float32)
    for number, frame in enumerate(value):
        place = f"{at(path)}: frame {number}"
        if not isinstance(frame, list) or len(frame) != len(joints):
            raise TrellisError(f"{place} is {_kind(frame)}; {len(joints)} joints are expected")
        for name, point in zip(joints, frame, strict=True):
            if not isinstance(point, list) or len(point) != 3:
                raise TrellisError(f"{place}, {name!r} is {_kind(point)}; x, y, z are expected")
            for coordinate in point:
                number_like = isinstance(coordinate, int | float)
                if (
                    isinstance(coordinate, bool)
                    or not number_like
                    or not (abs(coordinate) <= LARGEST)
                ):
                    raise TrellisError(
                        f"{place}, {name!r}: {brief(repr(coordinate))} is no finite number within "
                        f"{LARGEST:g}"
                    )
    raise TrellisError(f"{at(path)}: these are not frames x {len(joints)} joints x 3 numbers")


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return {dict: "an object", str: "a string", type(None): "null"}.get(type(value), "a number")
