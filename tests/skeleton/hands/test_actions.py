"""Forty-five programmes, each told in a line, each within what a hand can do."""

import numpy as np
import pytest

from trellis.skeleton.data.hands import ACTIONS, Action
from trellis.skeleton.data.hands.hand import LIMITS


def test_there_are_45_of_different_names() -> None:
    assert len(ACTIONS) == len({action.name for action in ACTIONS}) == 45


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_a_programme_is_told_in_a_line_and_keeps_to_the_limits(action: Action) -> None:
    assert 10 < len(action.does) < 80 and "\n" not in action.does
    assert 1 <= action.times[0] <= action.times[1]
    for key in (action.before, *action.cycle, action.after):
        pose = key.pose()
        assert key.beats > 0
        assert (pose >= LIMITS[:, 0]).all() and (pose <= LIMITS[:, 1]).all()


def test_no_two_programmes_are_the_same() -> None:
    told = {np.stack([key.pose() for key in action.cycle]).tobytes() for action in ACTIONS}
    assert len(told) == 45
    assert len({action.does for action in ACTIONS}) == 45
