"""The JSON part of a file: shapes, classes, and what becomes of a recording."""

from __future__ import annotations

import math
from typing import Any

from ...errors import TrellisError
from ..recording import BASES
from ..tables.form import VALUES


def checked_meta(meta: Any) -> dict[str, Any]:
    """The same, once everything that is used has the type that is expected."""
    if not isinstance(meta, dict) or meta.get("values") not in VALUES:
        raise TrellisError("its META says nothing of values")
    for name in ("inputs", "outputs"):
        shapes = meta.get(name)
        if not isinstance(shapes, list) or not shapes or not all(map(_shape, shapes)):
            raise TrellisError(f"its META says nothing sound of {name}")
    classes = meta.get("classes")
    outputs = math.prod(meta["outputs"][0])
    if classes is not None and not (_words(classes) and len(classes) == outputs):
        raise TrellisError(f"its META does not name its {outputs} classes")
    if (recording := meta.get("recording")) is not None:
        _check_recording(recording, meta["inputs"])
    return meta


def _check_recording(recording: Any, inputs: list[list[int]]) -> None:
    sound = (
        isinstance(recording, dict)
        and _words(recording.get("joints"))
        and _whole(recording.get("chunks"), 1)
        and isinstance(recording.get("roots"), list)
        and bool(recording["roots"])
        and all(_whole(root, 0, len(recording["joints"]) - 1) for root in recording["roots"])
        and _above_zero(recording.get("scale"))
        and recording.get("basis", BASES[0]) in BASES
        and _body(recording.get("body"), len(recording["joints"]))
        and _bones(recording.get("bones"), len(recording["joints"]))
        and _above_zero(recording.get("length", 1.0 if "bones" not in recording else None))
    )
    if not sound or [inputs] != [[[len(recording["joints"]), 3 * recording["chunks"]]]]:
        raise TrellisError("its META says of recordings what does not fit its inputs")


def _body(value: Any, joints: int) -> bool:
    if value is None:
        return True
    four = isinstance(value, list) and len(value) == 4
    return four and all(_whole(joint, 0, joints - 1) for joint in value)


def _bones(value: Any, joints: int) -> bool:
    if value is None:
        return True
    pairs = isinstance(value, list) and all(isinstance(b, list) and len(b) == 2 for b in value)
    return pairs and bool(value) and all(_whole(j, 0, joints - 1) for bone in value for j in bone)


def _shape(value: Any) -> bool:
    whole = isinstance(value, list) and len(value) <= 16 and all(_whole(n, 1) for n in value)
    return whole and math.prod(value) <= 1 << 31


def _whole(value: Any, least: int, most: int = 1 << 31) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _above_zero(value: Any) -> bool:
    return isinstance(value, float | int) and math.isfinite(value) and value > 0


def _words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)
