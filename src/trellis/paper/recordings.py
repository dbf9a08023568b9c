"""Recordings as the networks see them: chunked, normalised by each fold's training part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import TrellisError
from ..skeleton import Normalisation, Skeletons, chunked
from ..skeleton.skeletons import Indices
from .settings import Data


@dataclass(frozen=True, eq=False)
class Split:
    """One fold: x (recordings, joints, chunks * 3), y (recordings,)."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


class Recordings:
    """All recordings, chunked once; a fold's tensors are made when it is asked for."""

    def __init__(self, skeletons: Skeletons, chunks: int) -> None:
        self.skeletons = skeletons
        self.chunked = chunked(skeletons.sequences, chunks)

    def fold(self, number: int, device: torch.device) -> Split:
        fold, labels = self.skeletons.folds[number], self.skeletons.labels
        normalise = Normalisation.fit(self.chunked[fold.train], self.skeletons.layout)

        def tensors(which: Indices) -> tuple[Tensor, Tensor]:
            x = torch.from_numpy(normalise(self.chunked[which]))
            return x.to(device), torch.from_numpy(labels[which].astype(np.int64)).to(device)

        return Split(*tensors(fold.train), *tensors(fold.test))


def describe(skeletons: Skeletons) -> Data:
    """What a plan needs to know of recordings; refuses folds that no table can be made from."""
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
