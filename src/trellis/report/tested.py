"""The recordings that a network was tested on, as far as a page shows them: two of each class."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..paper import Folder
from ..skeleton import Fold, Frames, Skeletons

# Some of the recordings tested on, by their numbers among these -> their names and frames.
Tested = Callable[[Sequence[int]], list[tuple[str, Frames]]]

# What a run says of hands45: the set is built in, and the same bytes everywhere.
BUILT_IN, DIGEST = "hands45", "f0651516d64d80365fccb245920dcea102d731fa9dc900cbb482f87dd6c1d0f0"


def from_fold(data: Skeletons, fold: Fold) -> Tested:
    def these(which: Sequence[int]) -> list[tuple[str, Frames]]:
        at = [int(fold.test[i]) for i in which]
        return [(data.names[i], data.sequences[i]) for i in at]

    return these


def from_built_in(folder: Folder) -> Tested | None:
    """Of a run on the built-in set, which makes what is shown of it alone; None of any other run.

    To make all of hands45 takes longer than the rest of a page.
    """
    if (folder.settings.data, folder.data.digest) != (BUILT_IN, DIGEST):
        return None
    from ..skeleton.hands import some_of_hands45  # much code that other runs do not need

    return some_of_hands45
