"""Who does what how often, and which of it is trained on."""

from __future__ import annotations

from typing import NamedTuple

from .actions import ACTIONS
from .chance import Chance

SUBJECTS = 6
# Everybody does everything twice to train on and twice to test on. Of the 270 pairs of person and
# action 60 have one more to train on and 35 one more to test on: 600 and 575, as FPHA's 1:1 split.
MORE_TRAIN, MORE_TEST = 60, 35


class Take(NamedTuple):
    """The ``repetition``-th time that ``subject`` does ``action``; all count from 0."""

    subject: int
    action: int
    repetition: int
    train: bool

    @property
    def name(self) -> str:
        """As a path, in FPHA's manner: ``subject_1/open_bottle/1``."""
        return f"subject_{self.subject + 1}/{ACTIONS[self.action].name}/{self.repetition + 1}"


def takes(chance: Chance) -> list[Take]:
    """All 1,175, by subject, action and repetition."""
    pairs = [(subject, action) for subject in range(SUBJECTS) for action in range(len(ACTIONS))]
    more = chance.shuffled(len(pairs)).tolist()
    plan = []
    for (subject, action), luck in zip(pairs, more, strict=True):
        parts = [True, False, True, False]
        parts += [True] * (luck < MORE_TRAIN) + [False] * (0 <= luck - MORE_TRAIN < MORE_TEST)
        plan += [Take(subject, action, i, train) for i, train in enumerate(parts)]
    return plan
