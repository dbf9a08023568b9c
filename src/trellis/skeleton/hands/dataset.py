"""hands45: 1,175 made-up recordings of 45 hand actions, in the shape of FPHA."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import TrellisError
from ..skeletons import Fold, Frames, Skeletons
from .actions import ACTIONS
from .anatomy import LAYOUT
from .chance import Chance
from .recording import recorded
from .takes import takes


def hands45(seed: int = 0, variety: float = 1.0) -> Skeletons:
    """45 actions of a procedural hand, 600 recordings to train on and 575 to test on. Synthetic.

    The same seed gives the same bytes on every machine. Coordinates are millimetres before a
    camera on the person's head (x right, y down, z forward), to the hundredth. ``variety`` makes it
    harder, or easier: by how many times people, and repetitions, differ from one another.

    >>> data = hands45()
    >>> len(data), len(data.classes), data.synthetic
    (1175, 45, True)
    >>> data.names[0], data.sequences[0].shape[1:]
    ('subject_1/open_bottle/1', (21, 3))
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise TrellisError(f"seed={seed!r} is not a whole number from 0 up")
    if isinstance(variety, bool) or not isinstance(variety, int | float) or not 0 <= variety <= 3:
        raise TrellisError(f"variety={variety!r} is not a number from 0 to 3")
    all_takes = takes(Chance(seed, 0))
    train = np.array([take.train for take in all_takes])
    return Skeletons(
        source="hands45",
        sequences=recorded(all_takes, seed, variety=float(variety)),
        labels=np.array([take.action for take in all_takes], np.int64),
        classes=tuple(action.name for action in ACTIONS),
        names=tuple(take.name for take in all_takes),
        layout=LAYOUT,
        folds=(Fold("1:1", np.flatnonzero(train), np.flatnonzero(~train)),),
        synthetic=True,
    )


def some_of_hands45(which: Sequence[int], seed: int = 0) -> list[tuple[str, Frames]]:
    """Some of the recordings to test on, counted from 0, their names and frames: those of
    `hands45`, made without the others.

    >>> [(name, frames)] = some_of_hands45([7])
    >>> data = hands45()
    >>> seven = data.folds[0].test[7]
    >>> name == data.names[seven], bool((frames == data.sequences[seven]).all())
    (True, True)
    """
    all_takes = takes(Chance(seed, 0))
    tested = [i for i, take in enumerate(all_takes) if not take.train]
    only = [tested[i] for i in which]
    names = [all_takes[i].name for i in only]
    return list(zip(names, recorded(all_takes, seed, only), strict=True)) if only else []
