"""What a run's classes and joints are called, and what its test recordings are.

Written beside the cells, so that a run can be looked at where its recordings are not.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from ..errors import TrellisError
from ..schema import RunRecordings, read_json
from ..skeleton import Layout, Skeletons
from ..skeleton.pose import mean_pose
from .settings import Data

NAME = "recordings.json"


@dataclass(frozen=True)
class Named:
    """``labels`` are those of the test recordings, fold by fold, in the order that a cell's
    ``said`` has; ``pose`` is the skeleton's mean pose, (joints, 3)."""

    classes: tuple[str, ...]
    layout: Layout
    labels: tuple[tuple[int, ...], ...]
    pose: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, skeletons: Skeletons) -> Named:
        train = [skeletons.sequences[i] for i in skeletons.folds[0].train]
        pose = mean_pose(train, skeletons.layout.roots).round(4)
        return cls(
            tuple(skeletons.classes),
            skeletons.layout,
            tuple(tuple(skeletons.labels[fold.test].tolist()) for fold in skeletons.folds),
            tuple(map(tuple, pose.tolist())),
        )

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, allow_nan=False) + "\n"


def read_named(folder: Path, data: Data) -> Named | None:
    """What a run's folder says of its recordings, which are those of ``data``; None for a run that
    an older version made."""
    path = folder / NAME
    remedy = "delete it, and give the command that made the run again"
    try:
        given = read_json(path, RunRecordings, remedy)
    except FileNotFoundError:
        return None
    try:
        classes, labels = given["classes"], given["labels"]
        for at, found, expected in (
            ("classes", len(classes), data.classes),
            ("layout.joints", len(given["layout"]["joints"]), data.joints),
            ("pose", len(given["pose"]), data.joints),
            ("labels", tuple(map(len, labels)), data.test),
        ):
            if found != expected:
                raise TrellisError(f"expected {expected} at $.{at}, got {found!s:.60}")
        if max(map(max, labels)) >= data.classes:
            raise TrellisError(f"expected classes below {data.classes} at $.labels, got others")
        return Named(
            tuple(classes),
            Layout.from_dict(given["layout"]),
            tuple(map(tuple, labels)),
            tuple(given["pose"]),
        )
    except TrellisError as error:
        raise TrellisError(f"{str(path)!r}: {error!s:.400}; {remedy}") from None
