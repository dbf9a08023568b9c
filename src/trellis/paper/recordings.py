"""The recordings of a run, chunked and normalized by each fold's training recordings."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import TrellisError
from ..schema import RunRecordings, read_json
from ..skeleton import Layout, Normalization, Skeletons, chunked
from ..skeleton.data.dataset import Indices
from ..skeleton.data.pose import mean_pose
from .settings import Data


@dataclass(frozen=True, eq=False)
class Split:
    """The tensors of one fold: x (recordings, joints, chunks * 3) and y (recordings,)."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


class Recordings:
    """All recordings, chunked once; `fold` returns the tensors of a fold."""

    def __init__(self, skeletons: Skeletons, chunks: int) -> None:
        self.skeletons = skeletons
        self.chunked = chunked(skeletons.sequences, chunks)

    def fold(self, number: int, device: torch.device) -> Split:
        """Return the tensors of a fold on a device."""
        fold, labels = self.skeletons.folds[number], self.skeletons.labels
        normalize = Normalization.fit(self.chunked[fold.train], self.skeletons.layout)

        def tensors(which: Indices) -> tuple[Tensor, Tensor]:
            x = torch.from_numpy(normalize(self.chunked[which]))
            return x.to(device), torch.from_numpy(labels[which].astype(np.int64)).to(device)

        return Split(*tensors(fold.train), *tensors(fold.test))


def describe(skeletons: Skeletons) -> Data:
    """Return the description of recordings that a plan needs.

    Raises:
        TrellisError: The data has no folds, or a fold without training or test recordings.
    """
    if not skeletons.folds:
        raise TrellisError(f"{skeletons.source!r} has no split into training and test recordings")
    for fold in skeletons.folds:
        if len(fold.train) == 0 or len(fold.test) == 0:
            raise TrellisError(
                f"{skeletons.source!r}: fold {fold.name!r} has {len(fold.train)} recordings to "
                f"train on and {len(fold.test)} to test on; a table needs both"
            )
    return Data(
        source=skeletons.source,
        synthetic=skeletons.synthetic,
        recordings=len(skeletons),
        frames=skeletons.frames,
        joints=len(skeletons.layout.joints),
        classes=len(skeletons.classes),
        folds=tuple(fold.name for fold in skeletons.folds),
        train=tuple(len(fold.train) for fold in skeletons.folds),
        test=tuple(len(fold.test) for fold in skeletons.folds),
        left_out=len(skeletons.left_out),
        digest=skeletons.digest,
    )


# Written beside the cells, so that a run can be viewed without its recordings.
NAME = "recordings.json"


@dataclass(frozen=True)
class Named:
    """The names of a run's classes and joints, and the labels of its test recordings.

    Args:
        classes: The names of the classes.
        layout: The skeleton.
        labels: The labels of each fold's test recordings, in the order of a cell's ``said``.
        pose: The mean pose, (joints, 3).
    """

    classes: tuple[str, ...]
    layout: Layout
    labels: tuple[tuple[int, ...], ...]
    pose: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, skeletons: Skeletons) -> Named:
        """Return the names and labels of recordings."""
        train = [skeletons.sequences[i] for i in skeletons.folds[0].train]
        pose = mean_pose(train, skeletons.layout.roots).round(4)
        return cls(
            tuple(skeletons.classes),
            skeletons.layout,
            tuple(tuple(skeletons.labels[fold.test].tolist()) for fold in skeletons.folds),
            tuple(map(tuple, pose.tolist())),
        )

    def text(self) -> str:
        """Return the content of ``recordings.json``."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, allow_nan=False) + "\n"


def read_named(folder: Path, data: Data) -> Named | None:
    """Return the names and labels stored in a run's folder; None in runs of older releases.

    Raises:
        TrellisError: The file is damaged or does not fit ``data``.
    """
    path = folder / NAME
    remedy = "delete it, and run the same settings again"
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
