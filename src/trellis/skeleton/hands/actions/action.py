"""What an action is: a name, what it does, and the poses it goes through."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..chance import Floats
from ..grips import RELAXED
from ..pose import Key, key

# Where a hand comes from and goes to: relaxed, and nearer to the body.
_FROM = key(RELAXED, turn=35, up=-30, forward=-40)
_BACK = key(RELAXED, 1.5, turn=35, up=-30, forward=-40)


@dataclass(frozen=True)
class Action:
    """A programme of movement: reach, go through ``cycle`` so many ``times``, and let go.

    ``does`` says in a line what one sees. All actions begin and end alike, so that only what
    happens in between tells them apart.
    """

    name: str
    does: str
    cycle: tuple[Key, ...]
    times: tuple[int, int] = (1, 1)
    before: Key = _FROM
    after: Key = _BACK

    @cached_property
    def keys(self) -> tuple[Floats, Floats]:
        """Beats (keys,) and poses (keys, 28) of reaching, one cycle and letting go."""
        every = (self.before, *self.cycle, self.after)
        return np.array([key.beats for key in every]), np.stack([key.pose() for key in every])
