"""What a run's classes and joints are called, and what its test recordings are.

Written beside the cells, so that a run can be looked at where its recordings are not.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import TrellisError
from ..files import read_whole
from ..skeleton import Layout, Skeletons
from ..skeleton.pose import mean_pose

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


def read_named(folder: Path) -> Named | None:
    """What a run's folder says of its recordings; None for a run that an older version made."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        given: dict[str, Any] = json.loads(read_whole(path))
        layout: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in given["layout"].items()
        }
        return Named(
            tuple(map(str, given["classes"])),
            Layout(**layout),
            tuple(tuple(map(int, fold)) for fold in given["labels"]),
            tuple(tuple(map(float, joint)) for joint in given["pose"]),
        )
    except OSError as error:
        raise TrellisError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrellisError(
            f"{str(path)!r} does not describe recordings ({error!r}): delete it, and give the "
            "command that made the run again"
        ) from None
